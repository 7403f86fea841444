#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "darkroom/core/clock.h"

namespace darkroom {

/// A clock for tests of retries: whoever waits for time to pass finds that it has passed, and nobody really waits. Thread safety: any
/// thread.
class LeapClock final : public Clock {
 public:
  explicit LeapClock(std::chrono::system_clock::time_point wall = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1)) : wall_(wall) {}

  Instant now() const override {
    const std::lock_guard hold(mutex_);
    return Instant() + passed_;
  }
  std::chrono::system_clock::time_point wall() const override {
    const std::lock_guard hold(mutex_);
    return wall_ + std::chrono::duration_cast<std::chrono::system_clock::duration>(passed_);
  }
  bool wait_until(std::unique_lock<std::mutex>& /*lock*/, std::condition_variable_any& /*cv*/, std::stop_token stop, Instant until,
                  const std::function<bool()>& pred) override {
    if (!stop.stop_requested()) {
      const std::lock_guard hold(mutex_);
      passed_ = std::max(passed_, until - Instant());
    }
    return pred();
  }

 private:
  mutable std::mutex mutex_;
  Instant::duration passed_{};
  const std::chrono::system_clock::time_point wall_;
};

}  // namespace darkroom
