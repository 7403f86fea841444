#include "layers.h"

#include "darkroom/ops/group_norm.h"
#include "darkroom/ops/group_norm_silu.h"

namespace darkroom {

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, bool with_bias) {
  weight_ = register_parameter("weight", torch::empty({out_features, in_features}));
  if (with_bias) {
    bias_ = register_parameter("bias", torch::empty({out_features}));
  }
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) { return at::linear(x, weight_, bias_); }

Conv2dImpl::Conv2dImpl(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding)
    : stride_(stride), padding_(padding) {
  weight_ = register_parameter("weight", torch::empty({out_channels, in_channels, kernel, kernel}));
  bias_ = register_parameter("bias", torch::empty({out_channels}));
}

torch::Tensor Conv2dImpl::forward(const torch::Tensor& x_nchw) { return at::conv2d(x_nchw, weight_, bias_, stride_, padding_); }

GroupNormImpl::GroupNormImpl(int64_t num_groups, int64_t num_channels, double eps) : num_groups_(num_groups), eps_(eps) {
  weight_ = register_parameter("weight", torch::empty({num_channels}));
  bias_ = register_parameter("bias", torch::empty({num_channels}));
}

torch::Tensor GroupNormImpl::forward(const torch::Tensor& x) { return group_norm(x, weight_, bias_, num_groups_, eps_); }

torch::Tensor GroupNormImpl::forward_silu(const torch::Tensor& x) { return group_norm_silu(x, weight_, bias_, num_groups_, eps_); }

LayerNormImpl::LayerNormImpl(int64_t num_features, double eps) : eps_(eps) {
  weight_ = register_parameter("weight", torch::empty({num_features}));
  bias_ = register_parameter("bias", torch::empty({num_features}));
}

torch::Tensor LayerNormImpl::forward(const torch::Tensor& x) { return at::layer_norm(x, {weight_.size(0)}, weight_, bias_, eps_); }

EmbeddingImpl::EmbeddingImpl(int64_t num_rows, int64_t width) { weight_ = register_parameter("weight", torch::empty({num_rows, width})); }

torch::Tensor EmbeddingImpl::forward(const torch::Tensor& ids) { return at::embedding(weight_, ids); }

}  // namespace darkroom
