#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

enum class ClipActivation { kGelu, kQuickGelu };

/// The architecture of a CLIPTextModel or CLIPTextModelWithProjection: what transformers' text_encoder/config.json says, checked.
struct ClipTextConfig {
  int64_t vocab_size = 49408;
  int64_t hidden_size = 512;
  int64_t intermediate_size = 2048;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 8;
  int64_t max_position_embeddings = 77;
  ClipActivation hidden_act = ClipActivation::kQuickGelu;
  double layer_norm_eps = 1e-5;
  double initializer_factor = 1.0;  ///< Scale of the default initialisation.
  bool with_projection = false;     ///< CLIPTextModelWithProjection: one embedding a text, projection_dim wide.
  // Without projection the rest decides nothing here and is kept for the round trip.
  int64_t projection_dim = 512;
  int64_t bos_token_id = 49406;
  int64_t eos_token_id = 49407;  ///< Where the embedding of a text is taken; 2 stands for the largest id, as in the oldest configs.
  int64_t pad_token_id = 1;

  /// Reads a transformers config.json. Missing keys take transformers' defaults; what this program cannot compute is refused.
  /// Errors: kFailedPrecondition naming the field and its value; another class's config is named as such.
  static Result<ClipTextConfig> from_json(const nlohmann::json& config);
  /// The same config as transformers writes it; from_json reads it back equal.
  nlohmann::json to_json() const;

  bool operator==(const ClipTextConfig&) const = default;
};

/// What SDXL takes from a text encoder.
struct ClipTextStates {
  torch::Tensor penultimate_btc;  ///< States before the last layer, without the final norm: float [N, T, hidden_size].
  torch::Tensor text_embeds_np;   ///< float [N, projection_dim]; undefined without projection.
};

class ClipEncoderLayerImpl;
class EmbeddingImpl;
class LayerNormImpl;
class LinearImpl;

/// The text encoder of CLIP (Radford et al. 2021, arXiv 2103.00020), driven by its config. Parameter names are the
/// published ones with `text_model.`, and `text_projection.weight` where the config has one. Parameters are uninitialised memory until
/// initialize_parameters or a load fills them. Thread safety: forward is const in effect; one thread a model while gradients are collected.
class ClipTextModelImpl : public torch::nn::Module {
 public:
  explicit ClipTextModelImpl(ClipTextConfig config);

  /// ids_bt: int64 [N, T], T <= max_position_embeddings, each id below vocab_size (at::embedding throws otherwise).
  /// Returns last_hidden_state after the final layer norm, float [N, T, hidden_size]. The mask is causal only, so padding
  /// ids matter.
  torch::Tensor forward(const torch::Tensor& ids_bt);
  /// ids_bt as forward's. REQUIRES: at least one layer.
  ClipTextStates encode(const torch::Tensor& ids_bt);

  const ClipTextConfig& config() const { return config_; }

 private:
  struct LayerStates {
    torch::Tensor penultimate_btc;
    torch::Tensor last_btc;  // Before the final norm.
  };
  LayerStates run_layers(const torch::Tensor& ids_bt);

  ClipTextConfig config_;
  // Shared with torch's module registry, which owns children by shared_ptr.
  std::shared_ptr<EmbeddingImpl> token_embedding_;
  std::shared_ptr<EmbeddingImpl> position_embedding_;
  std::vector<std::shared_ptr<ClipEncoderLayerImpl>> layers_;
  std::shared_ptr<LayerNormImpl> final_layer_norm_;
  std::shared_ptr<LinearImpl> text_projection_;  // Null without projection.
};
TORCH_MODULE(ClipTextModel);

}  // namespace darkroom
