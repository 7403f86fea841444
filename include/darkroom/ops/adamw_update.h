#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/ops/adamw_scalar.h"

namespace darkroom {

/// Flat arrays of one length on one device; none overlap.
struct AdamWArrays {
  torch::Tensor weights;        ///< float32 master weights.
  torch::Tensor gradients;      ///< float32 or bfloat16.
  torch::Tensor first_moment;   ///< float32.
  torch::Tensor second_moment;  ///< float32.
  torch::Tensor ema;            ///< float32; undefined: none.
  torch::Tensor compute;        ///< bfloat16: gets the new weights rounded to nearest even; undefined: none.
};

/// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) as torch.optim.AdamW computes it, then ema += blend * (weights - ema), then the
/// compute copy, in one pass; bytes a parameter with float32 gradients and EMA: 20 read and 16 written; with a compute copy 20
/// and 18. Elementwise, each by IEEE single operations in a fixed order: the same bits on every device and for any number
/// of threads. When the gradient scale is not finite nothing is written. Nothing waits for the device. Thread safety: as its tensors.
void adamw_update(const AdamWArrays& arrays, const torch::Tensor& scalars);

/// Sums of squares of a flat float32 or bfloat16 buffer's chunks of kNormChunk elements, the last one perhaps smaller: float64 [chunks] on
/// its device. Summed in double in a fixed order: the same bits in every run and, on the CPU, for any number of threads; CPU and GPU differ
/// in the order. Parts of a buffer that are cut at chunks have the sums of the whole. Nothing waits for the device.
torch::Tensor norm_partials(const torch::Tensor& flat);
/// Their sum, float64 [1], in an order that depends on their number alone. Nothing waits for the device.
torch::Tensor add_norm_partials(const torch::Tensor& partials);
/// Sum of squares of such a buffer, float64 [1]: the sum of its partials.
torch::Tensor squared_norm(const torch::Tensor& flat);

/// scalars[AdamWScalar::kGradientScale] = max_norm / (sqrt(squared_norm) + 1e-6), at most 1, as torch.nn.utils.clip_grad_norm_, or 1 when
/// scalars[AdamWScalar::kMaxGradientNorm] is 0; NaN when the norm or one of `losses` (float32 [N]) is not finite, so that such a step
/// changes nothing without the CPU having looked. Nothing waits for the device.
void clip_scale(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars);

}  // namespace darkroom
