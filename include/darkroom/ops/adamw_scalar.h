#pragma once

#include <cstdint>

namespace darkroom {

/// Places in the scalars of an update: float64 (kCount), on the device of the arrays, so that a captured graph can be
/// replayed with another learning rate. All but the first two are rounded to float32 where they are used.
struct AdamWScalar {
  static constexpr int64_t kGradientScale = 0;  ///< Multiplies the gradient; not finite: the update writes nothing. clip_scale fills it in.
  static constexpr int64_t kMaxGradientNorm = 1;     ///< Read by clip_scale; 0: no clipping.
  static constexpr int64_t kWeightKeep = 2;          ///< 1 - lr * weight_decay.
  static constexpr int64_t kFirstBlend = 3;          ///< 1 - beta1.
  static constexpr int64_t kSecondKeep = 4;          ///< beta2.
  static constexpr int64_t kSecondBlend = 5;         ///< 1 - beta2.
  static constexpr int64_t kRootBiasCorrection = 6;  ///< sqrt(1 - beta2^t).
  static constexpr int64_t kEpsilon = 7;             ///< Added to the root of the second moment.
  static constexpr int64_t kNegativeStep = 8;        ///< -lr / (1 - beta1^t).
  static constexpr int64_t kEmaBlend = 9;            ///< 1 - decay.
  static constexpr int64_t kCount = 10;
};

/// Elements that make one partial sum of a norm (adamw_update.h's norm_partials).
inline constexpr int64_t kNormChunk = 1 << 14;

}  // namespace darkroom
