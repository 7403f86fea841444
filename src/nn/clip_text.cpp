#include "darkroom/nn/clip_text.h"

#include <utility>

#include "attention.h"
#include "clip_layers.h"
#include "darkroom/core/check.h"
#include "layers.h"

namespace darkroom {
namespace {

constexpr int64_t kOldEosTokenId = 2;

ClipLayerConfig layer_config(const ClipTextConfig& config) {
  return {.hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_heads = config.num_attention_heads,
          .activation = config.hidden_act,
          .layer_norm_eps = config.layer_norm_eps,
          .is_causal = true};
}

}  // namespace

ClipEncoderLayerImpl::ClipEncoderLayerImpl(const ClipLayerConfig& config) : config_(config) {
  const int64_t width = config.hidden_size;
  Placeholder attention, mlp;
  k_proj_ = attention->register_module("k_proj", Linear(width, width));
  v_proj_ = attention->register_module("v_proj", Linear(width, width));
  q_proj_ = attention->register_module("q_proj", Linear(width, width));
  out_proj_ = attention->register_module("out_proj", Linear(width, width));
  fc1_ = mlp->register_module("fc1", Linear(width, config.intermediate_size));
  fc2_ = mlp->register_module("fc2", Linear(config.intermediate_size, width));
  register_module("self_attn", attention);
  layer_norm1_ = register_module("layer_norm1", LayerNorm(width, config.layer_norm_eps));
  register_module("mlp", mlp);
  layer_norm2_ = register_module("layer_norm2", LayerNorm(width, config.layer_norm_eps));
}

torch::Tensor ClipEncoderLayerImpl::activate(const torch::Tensor& x) const {
  return config_.activation == ClipActivation::kGelu ? at::gelu(x) : x * at::sigmoid(1.702 * x);
}

torch::Tensor ClipEncoderLayerImpl::forward(const torch::Tensor& x_btc) {
  const auto normed = layer_norm1_(x_btc);
  // One after the other: the order in which an input is used is the order in which its gradients are summed.
  const auto q = q_proj_(normed);
  const auto k = k_proj_(normed);
  const auto v = v_proj_(normed);
  const auto attended = attend(q, k, v, config_.num_heads, config_.is_causal);
  const auto hidden = x_btc + out_proj_(attended);
  return hidden + fc2_(activate(fc1_(layer_norm2_(hidden))));
}

ClipTextModelImpl::ClipTextModelImpl(ClipTextConfig config) : config_(std::move(config)) {
  Placeholder text_model, embeddings, encoder;
  token_embedding_ = embeddings->register_module("token_embedding", Embedding(config_.vocab_size, config_.hidden_size));
  position_embedding_ = embeddings->register_module("position_embedding", Embedding(config_.max_position_embeddings, config_.hidden_size));
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    layers_.push_back(std::make_shared<ClipEncoderLayerImpl>(layer_config(config_)));
    list->push_back(layers_.back());
  }
  encoder->register_module("layers", list);
  text_model->register_module("embeddings", embeddings);
  text_model->register_module("encoder", encoder);
  final_layer_norm_ = text_model->register_module("final_layer_norm", LayerNorm(config_.hidden_size, config_.layer_norm_eps));
  register_module("text_model", text_model);
  if (config_.with_projection) {
    text_projection_ = register_module("text_projection", Linear(config_.hidden_size, config_.projection_dim, /*with_bias=*/false));
  }
}

ClipTextModelImpl::LayerStates ClipTextModelImpl::run_layers(const torch::Tensor& ids_bt) {
  DARKROOM_CHECK(ids_bt.dim() == 2 && ids_bt.size(1) <= config_.max_position_embeddings,
                 "the text encoder wants ids [N, T] (longest T, shape):", config_.max_position_embeddings, c10::str(ids_bt.sizes()));
  const auto positions = position_embedding_->weight().slice(0, 0, ids_bt.size(1));
  LayerStates states;
  states.last_btc = token_embedding_->forward(ids_bt) + positions;
  for (auto& layer : layers_) {
    states.penultimate_btc = states.last_btc;
    states.last_btc = layer->forward(states.last_btc);
  }
  return states;
}

torch::Tensor ClipTextModelImpl::forward(const torch::Tensor& ids_bt) { return final_layer_norm_->forward(run_layers(ids_bt).last_btc); }

ClipTextStates ClipTextModelImpl::encode(const torch::Tensor& ids_bt) {
  const LayerStates states = run_layers(ids_bt);
  if (!text_projection_) {
    return {.penultimate_btc = states.penultimate_btc, .text_embeds_np = {}};
  }
  // The first end of text; old configs name another id there and mean the largest one (transformers CLIPTextTransformer).
  const auto ends = config_.eos_token_id == kOldEosTokenId ? ids_bt.argmax(-1) : ids_bt.eq(config_.eos_token_id).to(torch::kInt).argmax(-1);
  const auto last_hidden_state = final_layer_norm_->forward(states.last_btc);
  const auto pooled = last_hidden_state.index({at::arange(ids_bt.size(0), ends.options()), ends});
  return {.penultimate_btc = states.penultimate_btc, .text_embeds_np = text_projection_->forward(pooled)};
}

}  // namespace darkroom
