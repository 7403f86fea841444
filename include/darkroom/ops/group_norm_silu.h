#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

/// silu(group_norm(x)): the pair in front of every convolution of a residual block (Wu & He 2018, arXiv 1803.08494;
/// Ramachandran et al. 2017, arXiv 1710.05941). x: float [N, C, ...]; weight and bias: [C]; num_groups divides C.
/// Differentiable in x, weight and bias. Bytes that a fused kernel moves: one read and one write of x after the
/// statistics. Thread safety: any thread.
torch::Tensor group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups,
                              double eps);

}  // namespace darkroom
