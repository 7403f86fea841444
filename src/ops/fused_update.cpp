#include "fused_update.h"

#include <cmath>

#include "darkroom/ops/adamw_scalar.h"

// One clone a vector width, chosen at load time. The bits are the same: no operation is reordered or contracted.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define DARKROOM_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DARKROOM_VECTOR_CLONES
#endif

namespace darkroom {

namespace {

DARKROOM_VECTOR_CLONES
void update_weights(float* __restrict weights, const float* __restrict gradients, float* __restrict first_moment,
                    float* __restrict second_moment, const FusedUpdateScalars s, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * s.gradient_scale;
    const float first = first_moment[i] + s.first_blend * (gradient - first_moment[i]);
    const float second = second_moment[i] * s.second_keep + s.second_blend * gradient * gradient;
    const float denominator = std::sqrt(second) / s.root_bias_correction2 + s.epsilon;
    first_moment[i] = first;
    second_moment[i] = second;
    weights[i] = weights[i] * s.weight_keep + s.negative_step * first / denominator;
  }
}

DARKROOM_VECTOR_CLONES
void update_ema(float* __restrict ema, const float* __restrict weights, float blend, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    ema[i] = ema[i] - blend * (ema[i] - weights[i]);
  }
}

constexpr int64_t kBlock = 2048;  // Elements whose weights are still in the first-level cache when the EMA reads them.

}  // namespace

FusedUpdateScalars rounded(const double* scalars) {
  const auto value = [&](int64_t place) { return static_cast<float>(scalars[place]); };
  return {.gradient_scale = value(AdamWScalar::kGradientScale),
          .weight_keep = value(AdamWScalar::kWeightKeep),
          .first_blend = value(AdamWScalar::kFirstBlend),
          .second_keep = value(AdamWScalar::kSecondKeep),
          .second_blend = value(AdamWScalar::kSecondBlend),
          .root_bias_correction2 = value(AdamWScalar::kRootBiasCorrection),
          .epsilon = value(AdamWScalar::kEpsilon),
          .negative_step = value(AdamWScalar::kNegativeStep),
          .ema_blend = value(AdamWScalar::kEmaBlend)};
}

void fused_adamw(const FusedUpdateArrays& arrays, const FusedUpdateScalars& scalars, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t count = end - first < kBlock ? end - first : kBlock;
    update_weights(arrays.weights + first, arrays.gradients + first, arrays.first_moment + first, arrays.second_moment + first, scalars,
                   count);
    if (arrays.ema != nullptr) {
      update_ema(arrays.ema + first, arrays.weights + first, scalars.ema_blend, count);
    }
  }
}

}  // namespace darkroom
