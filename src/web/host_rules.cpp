#include "darkroom/web/host_rules.h"

#include <cmath>

namespace darkroom {

Status HostRules::validate() const {
  const auto must_be = [](const char* rule, auto value) { return Status::invalid_argument(rule, value); };
  if (per_host < 1) {
    return must_be("per_host must be at least 1:", per_host);
  }
  if (!std::isfinite(per_host_rps) || per_host_rps < 0 || (per_host_rps > 0 && per_host_rps < 1e-5) || per_host_rps > 1e6) {
    return must_be("per_host_rps must be 0 or between 0.00001 and 1000000:", per_host_rps);
  }
  if (max_park.count() < 0 || max_park > std::chrono::hours(24 * 30)) {
    return must_be("max_park must be between 0 and 30 days (s):", max_park.count());
  }
  if (num_retries < 0 || num_retries > 100) {
    return must_be("num_retries must be between 0 and 100:", num_retries);
  }
  if (first_backoff.count() < 0 || first_backoff > std::chrono::hours(1)) {
    return must_be("first_backoff must be between 0 and an hour (ms):", first_backoff.count());
  }
  if (max_redirects < 0 || max_redirects > 100) {
    return must_be("max_redirects must be between 0 and 100:", max_redirects);
  }
  if (first_throttle.count() < 1 || first_throttle > std::chrono::hours(1)) {
    return must_be("first_throttle must be between 1 ms and an hour (ms):", first_throttle.count());
  }
  if (breaker_failures < 1) {
    return must_be("breaker_failures must be at least 1:", breaker_failures);
  }
  if (breaker_wait.count() < 1 || breaker_wait > std::chrono::hours(24)) {
    return must_be("breaker_wait must be between a second and a day (s):", breaker_wait.count());
  }
  if (forget_after.count() < 0 || forget_after > std::chrono::hours(24 * 30)) {
    return must_be("forget_after must be between 0 and 30 days (s):", forget_after.count());
  }
  return Status::ok();
}

}  // namespace darkroom
