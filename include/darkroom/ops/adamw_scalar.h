#pragma once

#include <cstdint>

namespace darkroom {

/// Places in the scalars of an update: float64 (kNumAdamWScalars), on the device of the arrays, so that a captured graph can be
/// replayed with another learning rate. All but the first two are rounded to float32 where they are used.
enum AdamWScalar : int64_t {
  kGradientScale,       ///< Multiplies the gradient; not finite: the update writes nothing. clip_scale fills it in.
  kMaxGradientNorm,     ///< Read by clip_scale; 0: no clipping.
  kWeightKeep,          ///< 1 - lr * weight_decay.
  kFirstBlend,          ///< 1 - beta1.
  kSecondKeep,          ///< beta2.
  kSecondBlend,         ///< 1 - beta2.
  kRootBiasCorrection,  ///< sqrt(1 - beta2^t).
  kEpsilon,
  kNegativeStep,  ///< -lr / (1 - beta1^t).
  kEmaBlend,      ///< 1 - decay.
  kNumAdamWScalars,
};

}  // namespace darkroom
