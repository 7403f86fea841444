#pragma once

#include <torch/torch.h>

namespace darkroom {

/// The gated unit of the transformers' feed-forward part (Shazeer 2020, arXiv 2002.05202): splits the last dimension of
/// x, float [..., 2D], into value and gate and returns value * gelu(gate), [..., D], with the exact (erf) gelu.
/// Differentiable in x, once. Bytes that a fused kernel moves: one read of x and one write of half of it; backward one read of x and
/// of the gradient and one write of x's size. Thread safety: any thread.
torch::Tensor geglu(const torch::Tensor& x);

}  // namespace darkroom
