#include "attention.h"

#include "darkroom/ops/geglu.h"

namespace darkroom {
namespace {

constexpr double kLayerNormEps = 1e-5;        // diffusers BasicTransformerBlock.
constexpr double kTransformerNormEps = 1e-6;  // diffusers Transformer2DModel.
constexpr int64_t kFeedForwardExpansion = 4;

// [N, C, H, W] -> [N, H*W, C], as a view where the layout allows it.
torch::Tensor pixels_last(const torch::Tensor& x_nchw) { return x_nchw.flatten(2).transpose(1, 2); }

// [N, H*W, C] -> [N, C, H, W] in the layout of `like`: a view where that is channels-last.
torch::Tensor pixels_first(const torch::Tensor& x_nlc, const torch::Tensor& like_nchw) {
  const auto x_nchw = x_nlc.transpose(1, 2).reshape({x_nlc.size(0), x_nlc.size(2), like_nchw.size(2), like_nchw.size(3)});
  return x_nchw.contiguous(like_nchw.suggest_memory_format());
}

torch::Tensor split_heads(const torch::Tensor& x_nlc, int64_t num_heads) {
  return x_nlc.reshape({x_nlc.size(0), x_nlc.size(1), num_heads, x_nlc.size(2) / num_heads}).transpose(1, 2);
}

// ModuleList [linear, dropout]: only the linear layer has parameters.
torch::nn::ModuleList output_list(const Linear& linear) { return torch::nn::ModuleList(linear, Placeholder()); }

}  // namespace

torch::Tensor attend(const torch::Tensor& q_nlc, const torch::Tensor& k_nsc, const torch::Tensor& v_nsc, int64_t num_heads,
                     bool is_causal) {
  const auto out = at::scaled_dot_product_attention(split_heads(q_nlc, num_heads), split_heads(k_nsc, num_heads),
                                                    split_heads(v_nsc, num_heads), {}, 0.0, is_causal);
  return out.transpose(1, 2).reshape(q_nlc.sizes());
}

AttentionImpl::AttentionImpl(int64_t num_channels, int64_t states_width, int64_t num_heads, bool with_qkv_bias) : num_heads_(num_heads) {
  to_q_ = register_module("to_q", Linear(num_channels, num_channels, with_qkv_bias));
  to_k_ = register_module("to_k", Linear(states_width, num_channels, with_qkv_bias));
  to_v_ = register_module("to_v", Linear(states_width, num_channels, with_qkv_bias));
  to_out_ = Linear(num_channels, num_channels);
  register_module("to_out", output_list(to_out_));
}

// In the forward functions one after the other: the order in which an input is used is the order in which its gradients are summed.
KeysAndValues AttentionImpl::keys_and_values(const torch::Tensor& states_nsa) {
  const auto keys = to_k_(states_nsa);
  return {.keys_ntc = keys, .values_ntc = to_v_(states_nsa)};
}

torch::Tensor AttentionImpl::attend_to_itself(const torch::Tensor& x_nlc, const torch::Tensor& residual_nlc) {
  const auto q = to_q_(x_nlc);
  const auto known = keys_and_values(x_nlc);
  return to_out_->forward_plus(attend(q, known.keys_ntc, known.values_ntc, num_heads_), residual_nlc);
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x_nlc, const TextStates& states, const torch::Tensor& residual_nlc) {
  const auto q = to_q_(x_nlc);
  const auto known = states.of(*this, [this](const torch::Tensor& states_nsa) { return keys_and_values(states_nsa); });
  return to_out_->forward_plus(attend(q, known.keys_ntc, known.values_ntc, num_heads_), residual_nlc);
}

FeedForwardImpl::FeedForwardImpl(int64_t num_channels) {
  const int64_t inner = kFeedForwardExpansion * num_channels;
  in_proj_ = Linear(num_channels, 2 * inner);
  out_proj_ = Linear(inner, num_channels);
  Placeholder gate;
  gate->register_module("proj", in_proj_);
  register_module("net", torch::nn::ModuleList(gate, Placeholder(), out_proj_));
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_nlc, const torch::Tensor& residual_nlc) {
  return out_proj_->forward_plus(geglu(in_proj_(x_nlc)), residual_nlc);
}

TransformerBlockImpl::TransformerBlockImpl(int64_t num_channels, int64_t states_width, int64_t num_heads) {
  norm1_ = register_module("norm1", LayerNorm(num_channels, kLayerNormEps));
  attn1_ = register_module("attn1", Attention(num_channels, num_channels, num_heads, /*with_qkv_bias=*/false));
  norm2_ = register_module("norm2", LayerNorm(num_channels, kLayerNormEps));
  attn2_ = register_module("attn2", Attention(num_channels, states_width, num_heads, /*with_qkv_bias=*/false));
  norm3_ = register_module("norm3", LayerNorm(num_channels, kLayerNormEps));
  ff_ = register_module("ff", FeedForward(num_channels));
}

torch::Tensor TransformerBlockImpl::forward(const torch::Tensor& x_nlc, const TextStates& states) {
  auto hidden = attn1_->attend_to_itself(norm1_(x_nlc), x_nlc);
  hidden = attn2_(norm2_(hidden), states, hidden);
  return ff_(norm3_(hidden), hidden);
}

Transformer2DImpl::Transformer2DImpl(const Transformer2DOptions& options) {
  const int64_t width = options.num_channels;
  norm_ = register_module("norm", GroupNorm(options.norm_num_groups, width, kTransformerNormEps));
  if (options.use_linear_projection) {
    linear_in_ = register_module("proj_in", Linear(width, width));
    linear_out_ = register_module("proj_out", Linear(width, width));
  } else {
    conv_in_ = register_module("proj_in", Conv2d(width, width, 1));
    conv_out_ = register_module("proj_out", Conv2d(width, width, 1));
  }
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < options.num_layers; ++i) {
    blocks_.emplace_back(width, options.states_width, options.num_heads);
    list->push_back(blocks_.back());
  }
  register_module("transformer_blocks", list);
}

torch::Tensor Transformer2DImpl::project_in(const torch::Tensor& x_nchw) {
  const auto normed = norm_(x_nchw);
  return linear_in_ ? linear_in_(pixels_last(normed)) : pixels_last(conv_in_(normed));
}

torch::Tensor Transformer2DImpl::project_out(const torch::Tensor& x_nlc, const torch::Tensor& like_nchw) {
  return linear_out_ ? pixels_first(linear_out_(x_nlc), like_nchw) : conv_out_(pixels_first(x_nlc, like_nchw));
}

torch::Tensor Transformer2DImpl::forward(const torch::Tensor& x_nchw, const TextStates& states) {
  auto hidden = project_in(x_nchw);
  for (auto& block : blocks_) {
    hidden = block(hidden, states);
  }
  return project_out(hidden, x_nchw) + x_nchw;
}

PixelAttentionImpl::PixelAttentionImpl(int64_t num_channels, int64_t norm_num_groups, double eps) {
  group_norm_ = register_module("group_norm", GroupNorm(norm_num_groups, num_channels, eps));
  to_q_ = register_module("to_q", Linear(num_channels, num_channels));
  to_k_ = register_module("to_k", Linear(num_channels, num_channels));
  to_v_ = register_module("to_v", Linear(num_channels, num_channels));
  to_out_ = Linear(num_channels, num_channels);
  register_module("to_out", output_list(to_out_));
}

torch::Tensor PixelAttentionImpl::forward(const torch::Tensor& x_nchw) {
  const auto pixels = group_norm_(x_nchw.flatten(2)).transpose(1, 2);
  const auto q = to_q_(pixels);
  const auto k = to_k_(pixels);
  const auto v = to_v_(pixels);
  const auto out = to_out_(attend(q, k, v, /*num_heads=*/1));
  return out.transpose(1, 2).reshape(x_nchw.sizes()) + x_nchw;
}

}  // namespace darkroom
