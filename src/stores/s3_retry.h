#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>

#include "darkroom/core/clock.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

constexpr int kMaxS3Tries = 100;  ///< That may be asked for.

/// What to do about one answer, or about none.
enum class S3Verdict {
  kFinal,        ///< It stands: success, or a failure that stays one.
  kRetry,        ///< May pass.
  kSlowDown,     ///< May pass, and the bucket asks for fewer requests.
  kWrongRegion,  ///< Sign for the bucket's region, once.
  kSkewedClock,  ///< Sign with the server's time, once.
  kExpiredKeys,  ///< Sign with keys that are asked for anew, once.
  kSilent,       ///< No answer in time: may pass, but a silent server is not waited for again and again.
};

/// `code`: of the error in the body, which a status of 200 may hold, too; empty: none. The rules: docs/stores.md.
S3Verdict judge_s3_answer(int status, std::string_view code);
/// Of an exchange without an answer.
S3Verdict judge_s3_end(HttpEnd end);

/// At how many requests per second one bucket is asked: as fast as anybody likes until it says "slow down"; then at half the rate of that
/// second, halved again at most once a second, and 10 % more every second without such an answer. Thread safety: any thread.
class S3Rate {
 public:
  using Instant = Clock::Instant;

  /// When the next request may be sent; takes that place.
  Instant take_turn(Instant now);
  void slow_down(Instant now);
  /// Requests per second; nothing: no limit.
  std::optional<double> limit(Instant now) const;

 private:
  void grow(Instant now);

  static constexpr double kLeast = 1.0;
  static constexpr double kMost = 10'000.0;  // Above this there is no limit.
  static constexpr double kGrowth = 1.1;     // Per second.

  mutable std::mutex mutex_;
  double rate_ = 0.0;  // 0: no limit.
  Instant grown_at_{};
  std::optional<Instant> halved_at_;
  Instant next_turn_{};
  Instant second_began_{};  // What is counted to know the rate where there is no limit yet.
  int num_in_second_ = 0;
  int num_in_last_second_ = 0;
};

}  // namespace darkroom
