#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/image/image.h"
#include "darkroom/serve/deadline_watch.h"
#include "darkroom/serve/safety_check.h"

namespace darkroom {

/// A picture that the safety checker has blocked stands empty in its place.
inline bool is_withheld(const Image& image) { return image.pixels.empty(); }
inline constexpr const char* kContentFilter = "content_filter";
/// Of each picture: "content_filter" of one that was withheld, else null.
nlohmann::json finish_reasons(const std::vector<Image>& images);

/// What happens to painted pictures before they go out, on threads of its own: the safety checker looks at each, then each is marked.
/// What waits is bounded by the memory for pictures, which each holds. Thread safety: any thread.
class PictureFinish {
 public:
  using Done = std::function<void(Result<std::vector<Image>>)>;
  using Mark = std::function<void(Image& image)>;

  /// `mark` null: none is marked; `check` null: none is asked. The clock outlives this.
  PictureFinish(Mark mark, SafetyCheck check, Clock& clock);
  /// stop()s.
  ~PictureFinish();
  PictureFinish(const PictureFinish&) = delete;
  PictureFinish& operator=(const PictureFinish&) = delete;

  /// Ends the threads and what waits or is being checked, as soon as the checker heeds its stop request; from now on nothing is finished
  /// any more. May be called twice, not by two threads at once.
  void stop();
  bool is_needed() const { return mark_ != nullptr || check_ != nullptr; }
  bool has_check() const { return check_ != nullptr; }
  /// `done` is called once, by one of the threads, at the deadline at the latest. Errors that it gets: kUnavailable (the checker gave no
  /// answer, or the deadline has passed, or this ends), kCancelled (given up), kInternal (a picture could not be marked or encoded).
  void finish(std::vector<Image> images, Clock::Instant deadline, std::stop_token given_up, Done done);

 private:
  struct Task {
    std::vector<Image> images;
    Clock::Instant deadline;
    std::stop_token given_up;
    Done done;             // Called by whoever takes the task from deadlines_.
    uint64_t watched = 0;  // Its number there.
  };
  void run(const std::stop_token& stop);
  void end_late(const std::shared_ptr<Task>& task);
  Result<std::vector<Image>> finished_safely(Task& task, const std::stop_token& stop) const;
  Result<std::vector<Image>> finished(Task& task, const std::stop_token& stop) const;
  Result<bool> may_go(const Image& image, const std::stop_token& stop) const;

  const Mark mark_;
  const SafetyCheck check_;
  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::deque<std::shared_ptr<Task>> waiting_;  // Shared with the watch of their deadlines.
  bool is_stopped_ = false;
  DeadlineWatch deadlines_;            // Of what waits and what is being checked.
  std::vector<std::jthread> threads_;  // Last: they use everything else.
};

}  // namespace darkroom
