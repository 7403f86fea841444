#pragma once

#include <cstdint>

#include "darkroom/core/status.h"

namespace darkroom {

/// The learning rate's path after the warm-up.
enum class LrDecay { kConstant, kCosine };

struct LrScheduleOptions {
  double peak = 1e-4;                  ///< Learning rate after the warm-up.
  int64_t warmup_steps = 10000;        ///< Linear from peak / warmup_steps at step 0; 0: none.
  LrDecay decay = LrDecay::kConstant;  ///< What follows.
  int64_t total_steps = 0;             ///< Step at which a cosine reaches its floor; unused by a constant.
  double floor = 0.0;                  ///< Last learning rate of a cosine.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// Learning rate of optimizer step `step` (0-based): peak * (step + 1) / warmup_steps while step < warmup_steps, then peak, or
/// floor + (peak - floor) * (1 + cos(pi * progress)) / 2 with progress from the end of the warm-up to total_steps.
double learning_rate_at(const LrScheduleOptions& options, int64_t step);

}  // namespace darkroom
