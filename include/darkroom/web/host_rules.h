#pragma once

#include <chrono>
#include <cstddef>

#include "darkroom/core/status.h"

namespace darkroom {

/// How politely hosts are asked and how long they are waited for.
struct HostRules {
  int per_host = 16;                             ///< Attempts on the wire to one host at a time.
  double per_host_rps = 0;                       ///< Attempts begun a second and host, evenly spaced; 0: no limit.
  std::chrono::seconds max_park{600};            ///< That a row may wait for its host, outside its deadline; 0: not at all.
  int num_retries = 2;                           ///< Further attempts of a row after failures that may pass.
  std::chrono::milliseconds first_backoff{500};  ///< Before the first retry; doubled for each further one, 50 to 100 % of it by chance.
  int max_redirects = 10;                        ///< One more is kTooManyRedirects.
  std::chrono::milliseconds first_throttle{
      2000};                               ///< A host's pause after its first 429 without Retry-After; doubled for each further one.
  int breaker_failures = 20;               ///< Network failures, none answered since it began, that open it.
  std::chrono::seconds breaker_wait{30};   ///< Its first pause; doubled for each further one, up to the larger of it and max_park.
  std::chrono::seconds forget_after{600};  ///< A host in trouble is forgotten so long after its last row.
  size_t max_idle_hosts = 100'000;         ///< Of such hosts; the longest idle go first.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

}  // namespace darkroom
