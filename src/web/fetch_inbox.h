#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/web/http_exchange.h"
#include "darkroom/web/network_watch.h"
#include "darkroom/web/resolver.h"

namespace darkroom {

/// The body memory has room for an attempt that was paused.
struct BytesGranted {};
/// The resolver's answer to a question whether it works.
struct ProbeAnswer {
  uint64_t round = 0;
  DnsAnswer::Kind kind = DnsAnswer::Kind::kOk;
};

/// What other threads tell the fetch thread of an attempt.
struct FetchEvent {
  uint64_t attempt = 0;
  std::variant<BytesGranted, DnsAnswer, HttpResult, ProbeAnswer> what;
};

/// Where the fetch thread waits: for events, a wake-up, sockets, or an instant. Shared with callbacks that cannot be taken back, so it may
/// outlive the thread. Thread safety: post() and wake() by any thread, the rest by one.
class FetchInbox {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  /// Errors: kUnavailable (no descriptors).
  static Result<std::shared_ptr<FetchInbox>> create();
  ~FetchInbox();
  FetchInbox(const FetchInbox&) = delete;
  FetchInbox& operator=(const FetchInbox&) = delete;

  void post(FetchEvent event);
  /// Ends the wait() of now, or the next one.
  void wake();

  /// Exchanges `events` for those that have come.
  void take(std::vector<FetchEvent>& events);
  /// Until an event, wake(), one of `sockets` (its revents are set) or `until`.
  void wait(std::vector<pollfd>& sockets, std::optional<Instant> until);

 private:
  FetchInbox() = default;
  void ring();

  int bell_ = -1;  // An eventfd.
  std::mutex mutex_;
  std::vector<FetchEvent> events_;
  bool has_news_ = false;
  bool is_waiting_ = false;
};

}  // namespace darkroom
