#pragma once

#include <cstdint>

namespace darkroom {

/// The scalars of one AdamW update (adamw_update.h), rounded to float as torch rounds them.
struct FusedUpdateScalars {
  float gradient_scale;
  float weight_keep;            ///< 1 - lr * weight_decay.
  float first_blend;            ///< 1 - beta1.
  float second_keep;            ///< beta2.
  float second_blend;           ///< 1 - beta2.
  float root_bias_correction2;  ///< sqrt(1 - beta2^t).
  float epsilon;
  float negative_step;  ///< -lr / (1 - beta1^t).
  float ema_blend;      ///< 1 - decay.
};

/// Those of an AdamW update's scalars, AdamWScalar::kCount of them (adamw_scalar.h).
FusedUpdateScalars rounded(const double* scalars);

/// The flat arrays of one update; `ema` may be null. None overlap.
struct FusedUpdateArrays {
  float* weights;
  const float* gradients;
  float* first_moment;
  float* second_moment;
  float* ema;
};

/// AdamW (and EMA) on elements [begin, end). Elementwise, each element by IEEE single operations in a fixed order.
void fused_adamw(const FusedUpdateArrays& arrays, const FusedUpdateScalars& scalars, int64_t begin, int64_t end);

}  // namespace darkroom
