#pragma once

#include <curl/curl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "darkroom/core/result.h"

namespace darkroom {

/// A libcurl multi handle driven by epoll: the cost of a step does not grow with the number of idle transfers.
/// Thread safety: one thread drives; wake() may be called by any.
class HttpMulti {
 public:
  using Clock = std::chrono::steady_clock;

  /// Errors: kUnavailable (the system gives no descriptors).
  static Result<std::unique_ptr<HttpMulti>> create(int num_kept_connections);
  ~HttpMulti();
  HttpMulti(const HttpMulti&) = delete;
  HttpMulti& operator=(const HttpMulti&) = delete;

  void add(CURL* easy);
  void remove(CURL* easy);
  /// Ends the drive() that waits now, or the next one.
  void wake();
  /// Waits until a socket, a timer of libcurl or wake() has something to do, until `until` at most; then does it.
  void drive(std::optional<Clock::time_point> until);
  /// A finished transfer, already removed, and how it ended.
  std::optional<std::pair<CURL*, CURLcode>> take_finished();

 private:
  HttpMulti() = default;
  static int on_socket(CURL* easy, curl_socket_t socket, int what, HttpMulti* self, void* known) noexcept;
  static int on_timer(CURLM* multi, long timeout_ms, HttpMulti* self) noexcept;
  Status open(int num_kept_connections);
  int wait_ms(std::optional<Clock::time_point> until) const;
  void act(curl_socket_t socket, int events);

  CURLM* multi_ = nullptr;
  int epoll_ = -1;
  int wake_event_ = -1;
  std::atomic<bool> is_woken_{false};  // Spares the system call while a wake is pending.
  std::optional<Clock::time_point> curl_timer_;
};

}  // namespace darkroom
