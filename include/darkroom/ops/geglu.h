#pragma once

#include <torch/torch.h>

namespace darkroom {

/// The gated unit of the transformers' feed-forward part (Shazeer 2020, arXiv 2002.05202): splits the last dimension of
/// x, float [..., 2D], into value and gate and returns value * gelu(gate), [..., D], with the exact (erf) gelu.
/// Differentiable in x. Thread safety: any thread.
torch::Tensor geglu(const torch::Tensor& x);

}  // namespace darkroom
