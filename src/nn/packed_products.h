#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

// Products with weights that oneDNN has laid out for its kernels: the operators that PyTorch's compiler uses for frozen networks. The
// layout is opaque. All without gradients, on the CPU, float32 or bfloat16. `addend` is of the result's shape, or undefined.

/// Whether bfloat16 has products of its own on this processor, and oneDNN may use them.
bool has_packed_bfloat16();

torch::Tensor pack_linear_weight(const torch::Tensor& weight_oi);
/// x W^T + bias + addend over the last dimension.
torch::Tensor packed_linear(const torch::Tensor& x, const torch::Tensor& packed, const torch::Tensor& bias, const torch::Tensor& addend);

/// A layer's weight in its packed form, which takes the place of the plain one: that gives its memory back, keeps shape, type and place,
/// and reads as NaN from then on.
class PackedWeight {
 public:
  bool is_defined() const { return packed_.defined(); }
  /// REQUIRES: no packed form was taken before.
  void take(torch::Tensor& weight, torch::Tensor packed);
  /// The packed form, to run with. REQUIRES: gradients are off and `weight` is as take() left it, neither loaded, moved nor cast since.
  const torch::Tensor& of(const torch::Tensor& weight) const;

 private:
  torch::Tensor packed_;
  torch::Tensor left_;  // The one NaN that stands for the plain weight.
};

struct ConvolutionSettings {
  int64_t stride = 1;
  int64_t padding = 0;
};

torch::Tensor pack_convolution_weight(const torch::Tensor& weight_oihw, const ConvolutionSettings& settings);
/// In any layout, out of it channels-last.
torch::Tensor packed_convolution(const torch::Tensor& x_nchw, const torch::Tensor& packed, const torch::Tensor& bias,
                                 const ConvolutionSettings& settings, const torch::Tensor& addend_nchw);

}  // namespace darkroom
