#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "packed_products.h"

namespace darkroom {

// The parameterised layers of the networks. Unlike torch::nn's they leave their parameters uninitialised, so building a
// network of a billion parameters costs no random numbers and touches no page of memory before the weights arrive.
// Each has the parameters `weight` and, except Embedding, optionally `bias`. Linear layers and convolutions have a packed form
// (darkroom/nn/packing.h), in which they run without gradients.

class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in_features, int64_t out_features, bool with_bias = true);
  torch::Tensor forward(const torch::Tensor& x);
  /// forward(x) + addend, which has its shape.
  torch::Tensor forward_plus(const torch::Tensor& x, const torch::Tensor& addend);
  void pack();

 private:
  torch::Tensor weight_, bias_;
  PackedWeight packed_;
};
TORCH_MODULE(Linear);

class Conv2dImpl : public torch::nn::Module {
 public:
  Conv2dImpl(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride = 1, int64_t padding = 0);
  torch::Tensor forward(const torch::Tensor& x_nchw);
  /// forward(x) + addend, which has its shape.
  torch::Tensor forward_plus(const torch::Tensor& x_nchw, const torch::Tensor& addend_nchw);
  const torch::Tensor& weight() const { return weight_; }
  void pack();
  bool is_packed() const { return packed_.is_defined(); }

 private:
  torch::Tensor run_packed(const torch::Tensor& x_nchw, const torch::Tensor& addend_nchw) const;

  torch::Tensor weight_, bias_;
  PackedWeight packed_;
  int64_t stride_, padding_;
};
TORCH_MODULE(Conv2d);

class GroupNormImpl : public torch::nn::Module {
 public:
  GroupNormImpl(int64_t num_groups, int64_t num_channels, double eps);
  torch::Tensor forward(const torch::Tensor& x);
  /// silu after the norm.
  torch::Tensor forward_silu(const torch::Tensor& x);

 private:
  torch::Tensor weight_, bias_;
  int64_t num_groups_;
  double eps_;
};
TORCH_MODULE(GroupNorm);

class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(int64_t num_features, double eps);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::Tensor weight_, bias_;
  double eps_;
};
TORCH_MODULE(LayerNorm);

class EmbeddingImpl : public torch::nn::Module {
 public:
  EmbeddingImpl(int64_t num_rows, int64_t width);
  torch::Tensor forward(const torch::Tensor& ids);
  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;
};
TORCH_MODULE(Embedding);

/// Stands where the published networks have a layer without parameters, so that the index of the next one is right.
class PlaceholderImpl : public torch::nn::Module {};
TORCH_MODULE(Placeholder);

}  // namespace darkroom
