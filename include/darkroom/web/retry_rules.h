#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "darkroom/core/row_error.h"

namespace darkroom {

/// How one attempt at one hop of a URL ended.
struct AttemptOutcome {
  enum class Kind {
    kAnswered,  ///< The server gave a final status: `status`, and `error` unless the body is there and wanted.
    kRedirect,  ///< It named another place.
    kFailed,    ///< No whole answer: `error`.
  };
  Kind kind = Kind::kAnswered;
  int status = 0;
  std::optional<RowError> error = std::nullopt;
  /// What Retry-After asked for, by parse_retry_after; nullopt without such a header.
  std::optional<std::chrono::seconds> retry_after = std::nullopt;
  /// With kFailed: the failure says nothing certain about the host, because a broken network or resolver of this machine looks the
  /// same: no answer of the resolver or SERVFAIL, unreachable, connecting timed out, connection lost, deadline passed. NXDOMAIN and a
  /// refused connection are answers: false.
  bool is_network = false;
  /// Part of the time on the wire that our own limits held the attempt up; does not count against its deadline.
  std::chrono::nanoseconds paused{0};
};

/// Whether the same request may end better soon, all retries aside: connection broken, body too short, resolver in trouble (not
/// NXDOMAIN), 429 and 5xx. A deadline that passed, TLS, a redirect loop and whatever else the web says stand at once.
bool may_pass(const AttemptOutcome& outcome);

/// Whether the host asked for less traffic: 429, or 503 with a Retry-After in the future. Its rows wait; none of them used up a retry.
bool asks_to_wait(const AttemptOutcome& outcome);

/// Whether a store (S3 or a hub) may answer the same request otherwise soon: 408, 429, 500, 502, 503, 504. Not 501, 505 and the rest:
/// they say that the store cannot do this at all.
bool store_status_may_pass(int status);

/// Waits between tries: `first`, doubled each time, never above `longest`; of that, by chance, 50 to 100 %.
struct Backoff {
  std::chrono::milliseconds first{500};
  std::chrono::milliseconds longest{std::chrono::hours(1)};

  /// The wait before retry `num_retries` (0: the first one); `chance` is uniform in [0, 1]. Never negative, whatever is asked.
  std::chrono::milliseconds delay(int num_retries, double chance) const;
};

/// Retry-After (RFC 9110, section 10.2.3): seconds, or a date in any of the three forms of section 5.6.7. A date that has passed is
/// 0, more than ten years is ten years. nullopt: neither of both ("soon", "-1", "1.5", ""). Thread safety: pure.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value, std::chrono::system_clock::time_point now);

}  // namespace darkroom
