#pragma once

#include <curl/curl.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "darkroom/io/fetch.h"

namespace darkroom {

using FetchClock = std::chrono::steady_clock;

class FetchTransfer;

/// What all transfers of one fetcher share. Counters are read by any thread, the rest belongs to the fetch thread.
struct FetchShared {
  FetchOptions options;
  AddressPolicy policy;
  std::deque<FetchTransfer*> paused;    ///< By the byte limit, oldest first.
  FetchTransfer* over_limit = nullptr;  ///< May go on over the byte limit, so that something finishes.
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> request_headers{nullptr, curl_slist_free_all};

  /// Adds body bytes to those held; the holder gives them back through `held_bytes`.
  void hold(int64_t num_bytes);

  std::atomic<int64_t> held_bytes{0};  ///< In active transfers and in replies not yet taken.
  std::atomic<int64_t> peak_held_bytes{0};
  std::atomic<int64_t> num_attempts{0};
  std::atomic<int64_t> num_connections{0};
  std::atomic<int64_t> num_refused{0};
  std::atomic<int64_t> num_retries{0};
  std::atomic<int64_t> num_bytes{0};
};

/// How one attempt ended.
struct FetchAttempt {
  std::optional<RowError> error;             ///< None: the body is complete.
  bool may_retry = false;                    ///< Another attempt may end better.
  std::chrono::milliseconds retry_after{0};  ///< Asked by the server.
};

/// One slot for a URL on its way, with an easy handle that serves many requests one after the other.
/// Thread safety: belongs to the fetch thread.
class FetchTransfer {
 public:
  explicit FetchTransfer(FetchShared& shared);
  ~FetchTransfer();
  FetchTransfer(const FetchTransfer&) = delete;
  FetchTransfer& operator=(const FetchTransfer&) = delete;

  CURL* handle() const { return easy_; }
  static FetchTransfer* of(CURL* handle);

  /// Takes a request; its deadline starts now. Gives kBadUrl when it cannot be sent.
  std::optional<RowError> assign(FetchRequest request, FetchClock::time_point now);
  void begin_attempt();
  /// REQUIRES: the handle has left the multi handle. Drops the body of a failed attempt.
  FetchAttempt end_attempt(CURLcode code);
  /// The error of an attempt that the deadline stopped.
  RowError timed_out();
  FetchReply make_reply(std::optional<RowError> error);

  int num_retries() const { return num_attempts_ - 1; }
  int64_t body_bytes() const { return static_cast<int64_t>(body_.size()); }

  /// REQUIRES: the transfer is paused.
  void resume(FetchClock::time_point now);
  /// Later by all the time that the byte limit has held the transfer up.
  FetchClock::time_point deadline(FetchClock::time_point now) const;

  enum class Place { kIdle, kActive, kWaiting, kDue };
  Place place = Place::kIdle;          ///< kActive: in the multi handle. kWaiting: for its back-off. kDue: for a place.
  std::optional<RowError> last_error;  ///< While waiting for a retry: why.
  FetchClock::time_point timer_at{};   ///< Its place in the loop's timers.

 private:
  static curl_socket_t open_socket(FetchTransfer* self, curlsocktype purpose, curl_sockaddr* address) noexcept;
  static size_t on_header(const char* line, size_t size, size_t count, FetchTransfer* self) noexcept;
  static size_t on_body(const char* bytes, size_t size, size_t count, FetchTransfer* self) noexcept;

  void set_options();
  bool take_header(std::string_view line);
  bool end_of_headers();
  bool keep_body(std::string_view bytes);
  bool discard_body(std::string_view bytes);
  bool stop(RowErrorCode code, std::string detail);
  bool is_success_status() const { return status_ == 200 || status_ == 203; }
  RowError error_of(CURLcode code) const;
  void drop_body();
  void leave_pause();

  FetchShared& shared_;
  CURL* easy_;
  char curl_message_[CURL_ERROR_SIZE] = {};

  // Of the request.
  FetchRequest request_;
  FetchClock::time_point deadline_{};
  int num_attempts_ = 0;
  int64_t num_bytes_ = 0;

  // Of the attempt.
  std::string body_;
  std::optional<RowError> stopped_;  // Why a callback ended the transfer.
  std::string refused_address_;      // Set while the last connection tried was refused.
  int status_ = 0;                   // Of the last status line.
  int64_t content_length_ = -1;      // Of the last response; -1 if it says nothing.
  bool has_headers_ = false;         // The last response's are complete.
  bool opted_out_ = false;
  size_t header_bytes_ = 0;
  size_t discarded_bytes_ = 0;
  std::optional<FetchClock::time_point> paused_since_;
  FetchClock::duration paused_time_{};
};

}  // namespace darkroom
