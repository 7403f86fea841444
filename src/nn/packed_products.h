#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

// Products with weights that oneDNN has laid out for its kernels: the operators that PyTorch's compiler uses for frozen networks. The
// layout is opaque. All without gradients, on the CPU, float32 or bfloat16. `addend` is of the result's shape, or undefined.

torch::Tensor pack_linear_weight(const torch::Tensor& weight_oi);
/// x W^T + bias + addend over the last dimension.
torch::Tensor packed_linear(const torch::Tensor& x, const torch::Tensor& packed, const torch::Tensor& bias, const torch::Tensor& addend);

struct ConvolutionSettings {
  int64_t stride = 1;
  int64_t padding = 0;
};

torch::Tensor pack_convolution_weight(const torch::Tensor& weight_oihw, const ConvolutionSettings& settings);
/// In any layout, out of it channels-last.
torch::Tensor packed_convolution(const torch::Tensor& x_nchw, const torch::Tensor& packed, const torch::Tensor& bias,
                                 const ConvolutionSettings& settings, const torch::Tensor& addend_nchw);

}  // namespace darkroom
