#pragma once

#include <chrono>
#include <deque>

namespace darkroom {

/// How fast a total grows now: of its samples in the last minute, not since its start. Thread safety: one thread at a time.
class RateWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateWindow(std::chrono::steady_clock::duration length = std::chrono::minutes(1)) : length_(length) {}

  /// REQUIRES: `when` is not before the last sample's.
  void add(Time when, double total);
  /// From the last sample before the window (where there is none: from the first one) to the newest. 0: the total did not grow, or there
  /// are no two samples yet.
  double per_second() const;

 private:
  struct Sample {
    Time when;
    double total;
  };

  const std::chrono::steady_clock::duration length_;
  std::deque<Sample> samples_;  // The first one is the last before the window.
};

}  // namespace darkroom
