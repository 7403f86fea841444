#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "darkroom/core/clock.h"

namespace darkroom {

/// How often each client may ask: a bucket per client that holds a minute's worth and fills evenly. Thread safety: any thread.
class RateLimit {
 public:
  /// `per_minute`: requests; 0: no bound. REQUIRES: at least 0, finite; the clock outlives this.
  explicit RateLimit(double per_minute, Clock& clock = system_clock());

  bool is_on() const { return per_minute_ > 0.0; }
  /// Takes a request of a client's bucket. Nothing: it may pass; else when one may pass again, from 1 s. There is a bucket for each client
  /// that ever asked, so clients are to be those that hold a key.
  std::optional<std::chrono::seconds> take(const std::string& client);

 private:
  struct Bucket {
    double requests;
    Clock::Instant filled;
  };

  const double per_minute_;
  Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;  // Guarded by mutex_.
};

}  // namespace darkroom
