#include "darkroom/serve/rate_limit.h"

#include <algorithm>
#include <cmath>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr double kSecondsPerMinute = 60.0;

}  // namespace

RateLimit::RateLimit(double per_minute, Clock& clock) : per_minute_(per_minute), clock_(clock) {
  DARKROOM_CHECK(per_minute >= 0.0 && std::isfinite(per_minute), "a rate is a number of at least 0, got:", per_minute);
}

std::optional<std::chrono::seconds> RateLimit::take(const std::string& client) {
  if (!is_on()) {
    return std::nullopt;
  }
  const double capacity = std::max(1.0, per_minute_);
  const Clock::Instant now = clock_.now();
  const std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_.try_emplace(client, Bucket{.requests = capacity, .filled = now}).first->second;
  const double seconds = std::chrono::duration<double>(now - bucket.filled).count();
  bucket.requests = std::min(capacity, bucket.requests + seconds * per_minute_ / kSecondsPerMinute);
  bucket.filled = now;
  if (bucket.requests >= 1.0) {
    bucket.requests -= 1.0;
    return std::nullopt;
  }
  const double wait = (1.0 - bucket.requests) * kSecondsPerMinute / per_minute_;
  constexpr double kLongestWait = 86'400.0;
  return std::chrono::seconds(static_cast<int64_t>(std::ceil(std::clamp(wait, 1.0, kLongestWait))));
}

}  // namespace darkroom
