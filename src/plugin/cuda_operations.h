#pragma once

#include "darkroom/ops/operation_table.h"

// The plugin's operations: shapes, types, layouts and alignment are put right here, then kernels.h does the work on the current stream.
// What has no kernel (float64) goes to the reference, which is torch's own CUDA kernels.

namespace darkroom {

/// The table for CUDA tensors. `reference` lives as long as the program.
const OperationTable* cuda_operations(const OperationTable& reference);

namespace cuda {

/// What cuda_operations was given. REQUIRES: it was called.
const OperationTable& fallback();

ForwardResult group_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const GroupNormSettings& settings);
std::array<torch::Tensor, 3> group_norm_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                 const GroupNormSettings& settings, std::array<bool, 3> wanted);
ForwardResult group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                              const GroupNormSettings& settings);
std::array<torch::Tensor, 3> group_norm_silu_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                      const GroupNormSettings& settings, std::array<bool, 3> wanted);
ForwardResult geglu(const torch::Tensor& x);
torch::Tensor geglu_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved);
void add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& scales_n2, torch::Tensor& noisy,
               torch::Tensor* velocity);
void counter_normal(torch::Tensor& out, uint64_t seed, uint8_t purpose, const torch::Tensor& coordinates_n2);
torch::Tensor norm_partials(const torch::Tensor& flat);
torch::Tensor add_norm_partials(const torch::Tensor& partials);
void clip_scale(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars);
void adamw_update(const AdamWArrays& arrays, const torch::Tensor& scalars);

}  // namespace cuda
}  // namespace darkroom
