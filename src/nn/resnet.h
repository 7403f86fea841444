#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "layers.h"

namespace darkroom {

struct ResnetOptions {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t time_channels = 0;  ///< Width of the time embedding; 0: none.
  int64_t norm_num_groups = 32;
  double eps = 1e-5;
};

/// Residual block: norm, silu, conv, (+ time), norm, silu, conv; a 1x1 convolution around it where the widths differ.
class ResnetBlockImpl : public torch::nn::Module {
 public:
  explicit ResnetBlockImpl(const ResnetOptions& options);
  /// activated_time: silu of the time embedding, [N, time_channels]; undefined without one. It is activated once a network,
  /// not once a block.
  torch::Tensor forward(const torch::Tensor& x_nchw, const torch::Tensor& activated_time = {});

 private:
  GroupNorm norm1_{nullptr}, norm2_{nullptr};
  Conv2d conv1_{nullptr}, conv2_{nullptr}, conv_shortcut_{nullptr};
  Linear time_emb_proj_{nullptr};
};
TORCH_MODULE(ResnetBlock);

/// Halves the size by a strided convolution; padding 0 means one row and column of zeros at the end only.
class DownsampleImpl : public torch::nn::Module {
 public:
  DownsampleImpl(int64_t num_channels, int64_t padding);
  torch::Tensor forward(const torch::Tensor& x_nchw);

 private:
  bool pads_end_;
  Conv2d conv_{nullptr};
};
TORCH_MODULE(Downsample);

/// Repeats pixels to the given height and width, then convolves.
class UpsampleImpl : public torch::nn::Module {
 public:
  explicit UpsampleImpl(int64_t num_channels);
  torch::Tensor forward(const torch::Tensor& x_nchw, int64_t height, int64_t width);

 private:
  Conv2d conv_{nullptr};
};
TORCH_MODULE(Upsample);

}  // namespace darkroom
