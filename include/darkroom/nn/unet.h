#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/nn/text_states.h"

namespace darkroom {

/// One level of the U-Net, from the highest resolution down.
struct UNetLevel {
  int64_t num_channels = 320;
  bool down_attention = true;  ///< CrossAttnDownBlock2D, otherwise DownBlock2D.
  bool up_attention = true;    ///< Of the up block at the same level.
  int64_t num_resnets = 2;     ///< layers_per_block; the up block has one more.
  int64_t num_heads = 8;       ///< Published under the name attention_head_dim, which is a known misnomer.
  int64_t num_transformer_layers = 1;
  int64_t states_width = 1280;  ///< cross_attention_dim.

  bool operator==(const UNetLevel&) const = default;
};

/// The second condition of SDXL (Podell et al. 2023, arXiv 2307.01952), published as addition_embed_type "text_time": a pooled text
/// embedding and sizes as sinusoidal features, through two linear layers, added to the time embedding.
struct UNetAddedEmbedding {
  int64_t time_channels = 256;  ///< addition_time_embed_dim: features of one size.
  int64_t input_width = 2816;   ///< projection_class_embeddings_input_dim: text embedding and all features.

  bool operator==(const UNetAddedEmbedding&) const = default;
};

/// The architecture of a UNet2DConditionModel: what diffusers' unet/config.json says, checked.
struct UNetConfig {
  int64_t sample_size = 64;  ///< Latent side the model was made for; forward takes any size.
  int64_t in_channels = 4;
  int64_t out_channels = 4;
  std::vector<UNetLevel> levels;
  bool use_linear_projection = false;  ///< Linear in- and out-projections of the transformers, otherwise 1x1 convolutions.
  bool upcast_attention = false;       ///< Kept for the round trip; in float32 it changes nothing.
  bool center_input_sample = false;    ///< Feed 2x - 1.
  bool flip_sin_to_cos = true;         ///< Cosines first in the timestep features.
  double freq_shift = 0;
  int64_t downsample_padding = 1;
  int64_t norm_num_groups = 32;
  double norm_eps = 1e-5;
  std::optional<UNetAddedEmbedding> added_embedding = std::nullopt;

  /// Reads a diffusers config.json. Missing keys take diffusers' defaults; what this program cannot compute is refused.
  /// Errors: kFailedPrecondition naming the field and its value; another class's config is named as such.
  static Result<UNetConfig> from_json(const nlohmann::json& config);
  /// The same config as diffusers writes it, every supported field spelt out; from_json reads it back equal.
  nlohmann::json to_json() const;

  /// The width of the text states, the same at all levels.
  int64_t states_width() const { return levels.front().states_width; }
  bool operator==(const UNetConfig&) const = default;
};

class UNetDownBlockImpl;
class UNetMidBlockImpl;
class UNetUpBlockImpl;
class TimestepEmbeddingImpl;
class Conv2dImpl;
class GroupNormImpl;

/// What a U-Net with an added embedding is told beside the text states.
struct AddedConditions {
  torch::Tensor text_embeds_nc;  ///< float [N, C], C = input_width - K * time_channels.
  torch::Tensor time_ids_nk;     ///< Numbers [N, K]; SDXL: original height and width, crop top and left, target height and width.
};

/// The denoiser of Stable Diffusion 1, 2 and XL (Rombach et al. 2022, arXiv 2112.10752; U-Net of Ho et al. 2020 with cross
/// attention), driven by its config. Parameter names are the published diffusers names. Parameters are uninitialised
/// memory until initialize_parameters (init.h) or a load (model_folder.h) fills them.
/// Thread safety: forward is const in effect; one thread a model while gradients are collected.
class UNet2DConditionModelImpl : public torch::nn::Module {
 public:
  explicit UNet2DConditionModelImpl(UNetConfig config);

  /// sample_nchw: float [N, in_channels, H, W]; timesteps_n: [N] or a scalar for all, integers or floats; states_btc: float [N, T,
  /// states_width]; float tensors of any float type are converted to that of the weights. Returns the prediction in the weights' type,
  /// [N, out_channels, H, W]. REQUIRES those shapes, and a config without added_embedding.
  torch::Tensor forward(const torch::Tensor& sample_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_btc);
  /// The same to the bit with states that may remember what the network makes of them. REQUIRES: they are of the weights' type.
  torch::Tensor forward_known(const torch::Tensor& sample_nchw, const torch::Tensor& timesteps_n, const TextStates& states);
  /// For a config with added_embedding.
  torch::Tensor forward_with(const torch::Tensor& sample_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_btc,
                             const AddedConditions& added);

  const UNetConfig& config() const { return config_; }

 private:
  torch::Tensor embed_timesteps(const torch::Tensor& timesteps_n, const torch::Tensor& sample_nchw);
  torch::Tensor embed_added(const AddedConditions& added, const torch::Tensor& sample_nchw);
  torch::Tensor denoise(const torch::Tensor& sample_nchw, const torch::Tensor& time_embedding_nc, const TextStates& states);

  UNetConfig config_;
  // Shared with torch's module registry, which owns children by shared_ptr.
  std::shared_ptr<Conv2dImpl> conv_in_;
  std::shared_ptr<TimestepEmbeddingImpl> time_embedding_;
  std::shared_ptr<TimestepEmbeddingImpl> add_embedding_;  // Null without added_embedding.
  std::vector<std::shared_ptr<UNetDownBlockImpl>> down_blocks_;
  std::shared_ptr<UNetMidBlockImpl> mid_block_;
  std::vector<std::shared_ptr<UNetUpBlockImpl>> up_blocks_;
  std::shared_ptr<GroupNormImpl> conv_norm_out_;
  std::shared_ptr<Conv2dImpl> conv_out_;
};
TORCH_MODULE(UNet2DConditionModel);

}  // namespace darkroom
