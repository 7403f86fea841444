#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

/// silu(group_norm(x)): the pair in front of every convolution of a residual block (Wu & He 2018, arXiv 1803.08494;
/// Ramachandran et al. 2017, arXiv 1710.05941). Shapes, layout and gradients as group_norm (group_norm.h). Bytes that a fused
/// kernel moves: two reads and one write of x; backward two reads of x and of the gradient and one write. Thread safety: any thread.
torch::Tensor group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups,
                              double eps);

}  // namespace darkroom
