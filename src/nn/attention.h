#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/nn/text_states.h"
#include "layers.h"

namespace darkroom {

// N batch, L queries, S keys, C channels, A states_width or C.

/// softmax(q k^T / sqrt(head width)) v over heads split from the last dimension: q [N, L, C], k and v [N, S, C] -> [N, L, C].
torch::Tensor attend(const torch::Tensor& q_nlc, const torch::Tensor& k_nsc, const torch::Tensor& v_nsc, int64_t num_heads,
                     bool is_causal = false);

/// Multi-head attention with diffusers' names to_q, to_k, to_v, to_out.0.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int64_t num_channels, int64_t states_width, int64_t num_heads, bool with_qkv_bias);
  /// Cross-attention, plus `residual`.
  torch::Tensor forward(const torch::Tensor& x_nlc, const TextStates& states, const torch::Tensor& residual_nlc);
  torch::Tensor attend_to_itself(const torch::Tensor& x_nlc, const torch::Tensor& residual_nlc);

 private:
  KeysAndValues keys_and_values(const torch::Tensor& states_nsa);

  int64_t num_heads_;
  Linear to_q_{nullptr}, to_k_{nullptr}, to_v_{nullptr}, to_out_{nullptr};
};
TORCH_MODULE(Attention);

/// Linear to twice the inner width, gated unit, linear back: names net.0.proj and net.2.
class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(int64_t num_channels);
  /// Plus `residual`.
  torch::Tensor forward(const torch::Tensor& x_nlc, const torch::Tensor& residual_nlc);

 private:
  Linear in_proj_{nullptr}, out_proj_{nullptr};
};
TORCH_MODULE(FeedForward);

/// Self-attention, cross-attention and feed-forward part, each behind a layer norm and beside a residual.
class TransformerBlockImpl : public torch::nn::Module {
 public:
  TransformerBlockImpl(int64_t num_channels, int64_t states_width, int64_t num_heads);
  torch::Tensor forward(const torch::Tensor& x_nlc, const TextStates& states);

 private:
  LayerNorm norm1_{nullptr}, norm2_{nullptr}, norm3_{nullptr};
  Attention attn1_{nullptr}, attn2_{nullptr};
  FeedForward ff_{nullptr};
};
TORCH_MODULE(TransformerBlock);

struct Transformer2DOptions {
  int64_t num_channels = 0;
  int64_t states_width = 0;
  int64_t num_heads = 1;
  int64_t num_layers = 1;
  int64_t norm_num_groups = 32;
  bool use_linear_projection = false;
};

/// Transformer over the pixels of a feature map, with a residual around it.
class Transformer2DImpl : public torch::nn::Module {
 public:
  explicit Transformer2DImpl(const Transformer2DOptions& options);
  torch::Tensor forward(const torch::Tensor& x_nchw, const TextStates& states);

 private:
  torch::Tensor project_in(const torch::Tensor& x_nchw);
  torch::Tensor project_out(const torch::Tensor& x_nlc, const torch::Tensor& like_nchw);

  GroupNorm norm_{nullptr};
  // Either the pair of linear layers or the pair of 1x1 convolutions, under the same names.
  Linear linear_in_{nullptr}, linear_out_{nullptr};
  Conv2d conv_in_{nullptr}, conv_out_{nullptr};
  std::vector<TransformerBlock> blocks_;
};
TORCH_MODULE(Transformer2D);

/// The autoencoder's attention over pixels: one head, group norm before, residual around.
class PixelAttentionImpl : public torch::nn::Module {
 public:
  PixelAttentionImpl(int64_t num_channels, int64_t norm_num_groups, double eps);
  torch::Tensor forward(const torch::Tensor& x_nchw);

 private:
  GroupNorm group_norm_{nullptr};
  Linear to_q_{nullptr}, to_k_{nullptr}, to_v_{nullptr}, to_out_{nullptr};
};
TORCH_MODULE(PixelAttention);

}  // namespace darkroom
