#include "darkroom/stream/rate_window.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {

void RateWindow::add(Time when, double total) {
  DARKROOM_CHECK(samples_.empty() || when >= samples_.back().when, "a sample is older than the one before it");
  samples_.push_back({when, total});
  while (samples_.size() > 1 && samples_[1].when <= when - length_) {
    samples_.pop_front();
  }
}

double RateWindow::per_second() const {
  if (samples_.size() < 2 || samples_.back().when == samples_.front().when) {
    return 0;
  }
  const std::chrono::duration<double> seconds = samples_.back().when - samples_.front().when;
  return std::max(0.0, samples_.back().total - samples_.front().total) / seconds.count();
}

}  // namespace darkroom
