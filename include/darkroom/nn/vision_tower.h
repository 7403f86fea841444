#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/nn/clip_text.h"

namespace darkroom {

/// The architecture of CLIP's picture tower: what `vision_config` of a transformers CLIPModel says, checked.
struct ClipVisionConfig {
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t image_size = 224;  ///< Side of the pictures, in pixels: a multiple of patch_size.
  int64_t patch_size = 32;
  ClipActivation hidden_act = ClipActivation::kQuickGelu;
  double layer_norm_eps = 1e-5;
  int64_t projection_dim = 512;  ///< Width of the embeddings that both towers share.

  /// Missing keys take transformers' defaults; what this program cannot compute is refused. Errors: kFailedPrecondition naming the field.
  static Result<ClipVisionConfig> from_json(const nlohmann::json& config);
};

class ClipEncoderLayerImpl;
class EmbeddingImpl;
class LayerNormImpl;
class LinearImpl;

/// The picture tower of CLIP (a vision transformer) with its projection: transformers' CLIPVisionModelWithProjection, whose parameter names
/// it has. Parameters are uninitialised memory until a load fills them. Thread safety: that of ClipTextModel.
class ClipVisionModelImpl : public torch::nn::Module {
 public:
  explicit ClipVisionModelImpl(ClipVisionConfig config);

  /// Normalised pictures, float [N, 3, image_size, image_size] -> embeddings [N, projection_dim], not of unit length.
  torch::Tensor forward(const torch::Tensor& pictures_nchw);
  const ClipVisionConfig& config() const { return config_; }

 private:
  ClipVisionConfig config_;
  torch::Tensor class_embedding_;
  torch::Tensor patch_weight_;
  // Shared with torch's module registry, which owns children by shared_ptr.
  std::shared_ptr<EmbeddingImpl> position_embedding_;
  std::vector<std::shared_ptr<ClipEncoderLayerImpl>> layers_;
  std::shared_ptr<LayerNormImpl> pre_layernorm_;
  std::shared_ptr<LayerNormImpl> post_layernorm_;
  std::shared_ptr<LinearImpl> projection_;
};
TORCH_MODULE(ClipVisionModel);

/// Both towers.
struct ClipTowers {
  ClipTextModel text;  ///< With projection.
  ClipVisionModel vision;
};

/// Loads a transformers CLIPModel from a local folder (config.json, model.safetensors or shards of it) onto the CPU in float32.
/// Errors: kNotFound, kFailedPrecondition (another class's config, weights that do not fit it), kCorruptData; each names what it is of.
Result<ClipTowers> load_clip(const std::string& folder);

}  // namespace darkroom
