#include "s3_retry.h"

#include <algorithm>
#include <cmath>

#include "darkroom/web/retry_rules.h"

namespace darkroom {
namespace {

struct S3Rule {
  int status;             ///< 0: any.
  std::string_view code;  ///< Empty: any.
  S3Verdict verdict;
};

// The first that fits. What is not here is final.
constexpr S3Rule kS3Rules[] = {
    {0, "SlowDown", S3Verdict::kSlowDown},
    {0, "SlowDownRead", S3Verdict::kSlowDown},
    {0, "SlowDownWrite", S3Verdict::kSlowDown},
    {0, "Throttling", S3Verdict::kSlowDown},
    {0, "TooManyRequests", S3Verdict::kSlowDown},
    {0, "RequestLimitExceeded", S3Verdict::kSlowDown},
    {429, "", S3Verdict::kSlowDown},
    {503, "", S3Verdict::kSlowDown},
    {0, "InternalError", S3Verdict::kRetry},
    {0, "RequestTimeout", S3Verdict::kRetry},  // 400: the server did not get the whole body in time.
    {0, "OperationAborted", S3Verdict::kRetry},
    {0, "ConditionalRequestConflict", S3Verdict::kRetry},  // 409 of two conditional writes at the same instant.
    {0, "RequestTimeTooSkewed", S3Verdict::kSkewedClock},
    {0, "ExpiredToken", S3Verdict::kExpiredKeys},
    {0, "TokenRefreshRequired", S3Verdict::kExpiredKeys},
    {0, "AuthorizationHeaderMalformed", S3Verdict::kWrongRegion},
    {0, "PermanentRedirect", S3Verdict::kWrongRegion},
    {301, "", S3Verdict::kWrongRegion},
};

}  // namespace

S3Verdict judge_s3_answer(int status, std::string_view code) {
  for (const S3Rule& rule : kS3Rules) {
    if ((rule.status == 0 || rule.status == status) && (rule.code.empty() || rule.code == code)) {
      return rule.verdict;
    }
  }
  return store_status_may_pass(status) ? S3Verdict::kRetry : S3Verdict::kFinal;
}

S3Verdict judge_s3_end(HttpEnd end) {
  switch (end) {
    case HttpEnd::kUnresolved:
    case HttpEnd::kConnectionRefused:
    case HttpEnd::kUnreachable:
    case HttpEnd::kBroken:
    case HttpEnd::kTruncated:
      return S3Verdict::kRetry;
    case HttpEnd::kConnectTimeout:
    case HttpEnd::kIdleTimeout:
    case HttpEnd::kDeadline:
      return S3Verdict::kSilent;
    default:
      return S3Verdict::kFinal;
  }
}

S3Rate::Instant S3Rate::take_turn(Instant now) {
  const std::lock_guard hold(mutex_);
  if (now - second_began_ >= std::chrono::seconds(1)) {
    num_in_last_second_ = now - second_began_ < std::chrono::seconds(2) ? num_in_second_ : 0;
    num_in_second_ = 0;
    second_began_ = now;
  }
  ++num_in_second_;
  grow(now);
  if (rate_ == 0.0) {
    return now;
  }
  const Instant turn = std::max(next_turn_, now);
  next_turn_ = turn + std::chrono::duration_cast<Instant::duration>(std::chrono::duration<double>(1.0 / rate_));
  return turn;
}

void S3Rate::slow_down(Instant now) {
  const std::lock_guard hold(mutex_);
  grow(now);
  if (halved_at_ && now - *halved_at_ < std::chrono::seconds(1)) {
    return;  // Requests that were under way together say it together.
  }
  const double rate = rate_ > 0.0 ? rate_ : std::max(num_in_second_, num_in_last_second_);
  rate_ = std::max(kLeast, rate / 2);
  halved_at_ = grown_at_ = now;
}

std::optional<double> S3Rate::limit(Instant now) const {
  const std::lock_guard hold(mutex_);
  const double grown = rate_ * std::pow(kGrowth, std::chrono::duration<double>(now - grown_at_).count());
  return rate_ > 0.0 && grown <= kMost ? std::optional(grown) : std::nullopt;
}

void S3Rate::grow(Instant now) {
  if (rate_ > 0.0 && now > grown_at_) {
    rate_ *= std::pow(kGrowth, std::chrono::duration<double>(now - grown_at_).count());
    rate_ = rate_ > kMost ? 0.0 : rate_;
    grown_at_ = now;
  }
}

}  // namespace darkroom
