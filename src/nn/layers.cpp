#include "layers.h"

#include "darkroom/ops/group_norm.h"
#include "darkroom/ops/group_norm_silu.h"

namespace darkroom {
namespace {

bool is_pointwise(const torch::Tensor& weight_oihw, int64_t stride, int64_t padding) {
  return weight_oihw.size(2) == 1 && weight_oihw.size(3) == 1 && stride == 1 && padding == 0;
}

torch::Tensor channels_as_last_dimension(const torch::Tensor& x_nchw) {
  return x_nchw.defined() ? x_nchw.contiguous(at::MemoryFormat::ChannelsLast).permute({0, 2, 3, 1}) : x_nchw;
}

}  // namespace

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, bool with_bias) {
  weight_ = register_parameter("weight", torch::empty({out_features, in_features}));
  if (with_bias) {
    bias_ = register_parameter("bias", torch::empty({out_features}));
  }
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) {
  return packed_.is_defined() ? packed_linear(x, packed_.of(weight_), bias_, {}) : at::linear(x, weight_, bias_);
}

torch::Tensor LinearImpl::forward_plus(const torch::Tensor& x, const torch::Tensor& addend) {
  return packed_.is_defined() ? packed_linear(x, packed_.of(weight_), bias_, addend) : at::linear(x, weight_, bias_) + addend;
}

void LinearImpl::pack() { packed_.take(weight_, pack_linear_weight(weight_)); }

Conv2dImpl::Conv2dImpl(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding)
    : stride_(stride), padding_(padding) {
  weight_ = register_parameter("weight", torch::empty({out_channels, in_channels, kernel, kernel}));
  bias_ = register_parameter("bias", torch::empty({out_channels}));
}

torch::Tensor Conv2dImpl::forward(const torch::Tensor& x_nchw) {
  return is_packed() ? run_packed(x_nchw, {}) : at::conv2d(x_nchw, weight_, bias_, stride_, padding_);
}

torch::Tensor Conv2dImpl::forward_plus(const torch::Tensor& x_nchw, const torch::Tensor& addend_nchw) {
  return is_packed() ? run_packed(x_nchw, addend_nchw) : at::conv2d(x_nchw, weight_, bias_, stride_, padding_) + addend_nchw;
}

// A convolution of single pixels is a linear layer over the channels, whose packed form suits every picture size.
void Conv2dImpl::pack() {
  packed_.take(weight_, is_pointwise(weight_, stride_, padding_)
                            ? pack_linear_weight(weight_.flatten(1))
                            : pack_convolution_weight(weight_, {.stride = stride_, .padding = padding_}));
}

torch::Tensor Conv2dImpl::run_packed(const torch::Tensor& x_nchw, const torch::Tensor& addend_nchw) const {
  const torch::Tensor& packed = packed_.of(weight_);
  if (!is_pointwise(weight_, stride_, padding_)) {
    return packed_convolution(x_nchw, packed, bias_, {.stride = stride_, .padding = padding_}, addend_nchw);
  }
  return packed_linear(channels_as_last_dimension(x_nchw), packed, bias_, channels_as_last_dimension(addend_nchw)).permute({0, 3, 1, 2});
}

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
