#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

/// Group normalisation (Wu & He 2018, arXiv 1803.08494): each of num_groups groups of channels of a sample to mean 0 and variance 1, then
/// times weight plus bias. x: float [N, C, ...]; weight and bias: [C]; num_groups divides C. The value has x's shape and, where that
/// is dense, its layout: channels-last stays channels-last. Differentiable in x, weight and bias, once. Thread safety: any thread.
torch::Tensor group_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups, double eps);

}  // namespace darkroom
