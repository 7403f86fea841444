#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/image/image.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/serve/deadline_watch.h"

namespace darkroom {

/// Bytes of the body of a request that may have a picture in it; those of others are shorter.
inline constexpr size_t kMaxPictureBodyBytes = 16'000'000;

/// A picture of a request, still encoded.
struct InputPicture {
  std::string field = {};  ///< "init_images[0]": how messages name it.
  std::string text = {};   ///< The file's bytes, or base64 of them.
  bool is_base64 = false;

  bool operator==(const InputPicture&) const = default;
};

/// Takes the text of a picture's field: base64, or data:image/...;base64,BASE64. Errors: kInvalidArgument naming the field: URLs of
/// other schemes, which this server does not open, data: URLs that are no picture in base64, empty texts. The base64 is looked at later.
Result<InputPicture> read_picture_text(std::string field, std::string text);

/// The file that a picture's text is. Errors: kInvalidArgument naming the field: no base64.
Result<std::string> picture_file(InputPicture picture);

struct PictureIntakeOptions {
  int num_threads = 2;                      ///< Each with a decoder of its own.
  int max_waiting = 64;                     ///< Requests that wait for a thread.
  int64_t max_waiting_bytes = 256'000'000;  ///< Of these requests.
  ImageLimits limits = {.min_size = 1, .max_pixels = 40'000'000};
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Threads on which requests with pictures are read and their pictures decoded, so that neither a long body nor a hostile picture holds
/// up the thread of the connections. Thread safety: any thread.
class PictureIntake {
 public:
  /// Opens a decoder whose work ends when a stop is requested.
  using OpenDecoder = std::function<Result<std::unique_ptr<PictureDecoder>>(std::stop_token stop)>;

  /// A thread's decoder, handed to its tasks. It is opened at the first picture, and again at the next where that failed.
  class Desk {
   public:
    Desk(const PictureIntake& intake, std::stop_token stop) : intake_(intake), stop_(std::move(stop)) {}
    /// The picture as RGB of width x height, resized as `sample --init-image` does it. Errors: kInvalidArgument naming the field: no
    /// base64, or no picture that can be decoded within the limits; kUnavailable: there is no decoder to be had, or the intake is stopped.
    Result<Image> decode(InputPicture picture, int width, int height);

   private:
    const PictureIntake& intake_;
    const std::stop_token stop_;
    std::unique_ptr<PictureDecoder> decoder_;
  };
  using Task = std::function<void(Desk&)>;
  /// When a task's end is no longer waited for, and who is told by a thread of the intake if it has not ended by then, once.
  struct Deadline {
    Clock::Instant at = Clock::Instant::max();
    std::function<void()> late = {};
  };

  /// REQUIRES: valid options; the clock outlives this.
  PictureIntake(const PictureIntakeOptions& options, OpenDecoder open, Clock& clock = system_clock());
  /// Drops what waits, stops what is decoded, and ends the threads.
  ~PictureIntake();
  PictureIntake(const PictureIntake&) = delete;
  PictureIntake& operator=(const PictureIntake&) = delete;

  /// Has a task done, of a request of so many bytes; it is dropped where `gone` is requested or its deadline passes before its turn. What
  /// it throws is logged, so it must answer whatever happens, also where its deadline passes meanwhile and another has answered. Errors:
  /// kResourceExhausted, kUnavailable (stopped).
  Status post(size_t num_bytes, std::stop_token gone, Task task) { return post(num_bytes, std::move(gone), std::move(task), {}); }
  Status post(size_t num_bytes, std::stop_token gone, Task task, Deadline deadline);
  /// Asks what is decoded for a stop, and has what waits done on this thread, where nothing is decoded any more; from now on nothing is
  /// taken. May be called twice, not by two threads at once.
  void stop();
  /// Requests that wait for a thread.
  size_t num_waiting() const;

 private:
  struct Waiting {
    size_t num_bytes;
    std::stop_token gone;
    Task task;
    uint64_t number = 0;
    std::optional<uint64_t> watched = {};  // Its number in deadlines_.
  };
  void run(const std::stop_token& stop);
  void drop_gone();
  void drop_late(uint64_t number);
  void handle(const Waiting& asked, Desk& desk);

  const PictureIntakeOptions options_;
  const OpenDecoder open_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::deque<Waiting> waiting_;
  int64_t waiting_bytes_ = 0;
  uint64_t num_posted_ = 0;
  bool is_stopped_ = false;
  DeadlineWatch deadlines_;            // Of what waits and what is being done.
  std::vector<std::jthread> threads_;  // Last: they use everything else.
};

}  // namespace darkroom
