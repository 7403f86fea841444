#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "darkroom/core/status.h"
#include "darkroom/serve/http_server.h"

namespace darkroom {

/// A thread that reads what may be slow or silent, as a store or a network's disk, so that neither the connections' thread nor those that
/// make replies wait for it. Thread safety: any thread.
class ReadingDesk {
 public:
  static constexpr size_t kMostWaiting = 32;
  /// Gets a token that is asked for a stop when the request's client is gone or the desk ends. Answers whatever happens, and at once where
  /// a stop is asked for already.
  using Task = std::function<void(const std::stop_token& stop)>;

  /// `what` is read, in messages: "datasets".
  explicit ReadingDesk(std::string what);
  /// stop()s.
  ~ReadingDesk();
  ReadingDesk(const ReadingDesk&) = delete;
  ReadingDesk& operator=(const ReadingDesk&) = delete;

  /// Asks what is read for a stop, and has what waits answer on this thread, whatever is read; from now on nothing is taken.
  void stop();
  /// Waits until nothing is read. False after `patience`: destroying the desk would wait for it.
  bool await_idle(std::chrono::milliseconds patience) const;
  /// Has a task done; it is dropped where `gone` is requested before its turn. Errors: kResourceExhausted, kUnavailable (stopped).
  Status post(std::stop_token gone, Task task);

  /// For tasks: answers with what `read` makes, or with what `give_up` makes as soon as a stop is asked for, while `read` may hang.
  static void answer_unless_stopped(const std::stop_token& stop, const HttpService::Answer& answer, const std::function<HttpReply()>& read,
                                    const std::function<HttpReply()>& give_up);

 private:
  struct Waiting {
    std::stop_token gone;
    Task task;
  };
  void run(const std::stop_token& stop);

  const std::string what_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::deque<Waiting> waiting_;
  bool is_stopped_ = false;
  bool is_reading_ = false;
  std::jthread thread_;  // Last: it uses everything else.
};

}  // namespace darkroom
