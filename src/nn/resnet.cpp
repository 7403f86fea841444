#include "resnet.h"

namespace darkroom {

ResnetBlockImpl::ResnetBlockImpl(const ResnetOptions& options) {
  norm1_ = register_module("norm1", GroupNorm(options.norm_num_groups, options.in_channels, options.eps));
  conv1_ = register_module("conv1", Conv2d(options.in_channels, options.out_channels, 3, 1, 1));
  if (options.time_channels > 0) {
    time_emb_proj_ = register_module("time_emb_proj", Linear(options.time_channels, options.out_channels));
  }
  norm2_ = register_module("norm2", GroupNorm(options.norm_num_groups, options.out_channels, options.eps));
  conv2_ = register_module("conv2", Conv2d(options.out_channels, options.out_channels, 3, 1, 1));
  if (options.in_channels != options.out_channels) {
    conv_shortcut_ = register_module("conv_shortcut", Conv2d(options.in_channels, options.out_channels, 1));
  }
}

torch::Tensor ResnetBlockImpl::forward(const torch::Tensor& x_nchw, const torch::Tensor& activated_time) {
  auto hidden = conv1_(norm1_->forward_silu(x_nchw));
  if (time_emb_proj_) {
    hidden = hidden + time_emb_proj_(activated_time).unsqueeze(2).unsqueeze(3);
  }
  hidden = norm2_->forward_silu(hidden);
  if (conv2_->is_packed()) {
    return conv2_->forward_plus(hidden, conv_shortcut_ ? conv_shortcut_(x_nchw) : x_nchw);
  }
  // In this order, which is that in which the gradients of x are summed.
  hidden = conv2_(hidden);
  return (conv_shortcut_ ? conv_shortcut_(x_nchw) : x_nchw) + hidden;
}

DownsampleImpl::DownsampleImpl(int64_t num_channels, int64_t padding) : pads_end_(padding == 0) {
  conv_ = register_module("conv", Conv2d(num_channels, num_channels, 3, 2, padding));
}

torch::Tensor DownsampleImpl::forward(const torch::Tensor& x_nchw) {
  return conv_(pads_end_ ? at::constant_pad_nd(x_nchw, {0, 1, 0, 1}) : x_nchw);
}

UpsampleImpl::UpsampleImpl(int64_t num_channels) { conv_ = register_module("conv", Conv2d(num_channels, num_channels, 3, 1, 1)); }

torch::Tensor UpsampleImpl::forward(const torch::Tensor& x_nchw, int64_t height, int64_t width) {
  return conv_(at::upsample_nearest2d(x_nchw, {height, width}));
}

}  // namespace darkroom
