#include "darkroom/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace darkroom {

Status LrScheduleOptions::validate() const {
  if (!(peak > 0.0 && std::isfinite(peak))) {
    return Status::invalid_argument("learning rate: the peak must be above 0, got:", peak);
  }
  if (warmup_steps < 0) {
    return Status::invalid_argument("learning rate: warmup_steps must be at least 0, got:", warmup_steps);
  }
  if (decay == LrDecay::kCosine && total_steps <= warmup_steps) {
    return Status::invalid_argument("learning rate: a cosine needs more steps than its warm-up (warm-up, steps):", warmup_steps,
                                    total_steps);
  }
  if (!(floor >= 0.0 && floor <= peak)) {
    return Status::invalid_argument("learning rate: the floor must be between 0 and the peak (peak, floor):", peak, floor);
  }
  return Status::ok();
}

double learning_rate_at(const LrScheduleOptions& options, int64_t step) {
  if (step < options.warmup_steps) {
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  if (options.decay == LrDecay::kConstant) {
    return options.peak;
  }
  const auto steps = static_cast<double>(options.total_steps - options.warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(step - options.warmup_steps) / steps);
  return options.floor + (options.peak - options.floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace darkroom
