#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// The architecture of an AutoencoderKL: what diffusers' vae/config.json says, checked.
struct VaeConfig {
  int64_t sample_size = 32;  ///< Image side the model was made for; encode takes any size.
  int64_t in_channels = 3;
  int64_t out_channels = 3;
  int64_t latent_channels = 4;
  std::vector<int64_t> block_out_channels = {64};  ///< From the highest resolution down; each but the last halves it.
  int64_t layers_per_block = 1;
  int64_t norm_num_groups = 32;
  double scaling_factor = 0.18215;  ///< Latents are stored and diffused as sample x scaling_factor.
  bool force_upcast = true;         ///< Kept for the round trip.
  bool use_quant_conv = true;
  bool use_post_quant_conv = true;
  bool mid_block_add_attention = true;

  /// Reads a diffusers config.json. Missing keys take diffusers' defaults; what this program cannot compute is refused.
  /// Errors: kFailedPrecondition naming the field and its value; another class's config is named as such.
  static Result<VaeConfig> from_json(const nlohmann::json& config);
  /// The same config as diffusers writes it; from_json reads it back equal.
  nlohmann::json to_json() const;

  /// Pixels a latent pixel, a side: 8 for Stable Diffusion.
  int64_t factor() const { return int64_t{1} << (block_out_channels.size() - 1); }
  bool operator==(const VaeConfig&) const = default;
};

/// The posterior of an image: a diagonal normal, not scaled. Both [N, latent_channels, H / factor, W / factor].
struct Moments {
  torch::Tensor mean;
  torch::Tensor logvar;  ///< Clamped to [-30, 20].
};

class VaeEncoderImpl;
class VaeDecoderImpl;
class Conv2dImpl;

/// The autoencoder of Stable Diffusion (Rombach et al. 2022, arXiv 2112.10752), driven by its config. Parameter names are
/// the published diffusers names. Parameters are uninitialised memory until initialize_parameters or a load fills them.
/// Thread safety: encode and decode are const in effect; one thread a model while gradients are collected.
class AutoencoderKLImpl : public torch::nn::Module {
 public:
  explicit AutoencoderKLImpl(VaeConfig config);

  /// image_nchw: float [N, 3, H, W] in [-1, 1], H and W multiples of factor().
  Moments encode(const torch::Tensor& image_nchw);
  /// latents_nchw: float [N, latent_channels, h, w], divided by scaling_factor already. Returns [N, 3, h * factor, w * factor].
  torch::Tensor decode(const torch::Tensor& latents_nchw);

  const VaeConfig& config() const { return config_; }

 private:
  VaeConfig config_;
  // Shared with torch's module registry, which owns children by shared_ptr.
  std::shared_ptr<VaeEncoderImpl> encoder_;
  std::shared_ptr<VaeDecoderImpl> decoder_;
  std::shared_ptr<Conv2dImpl> quant_conv_;       // Null without use_quant_conv.
  std::shared_ptr<Conv2dImpl> post_quant_conv_;  // Null without use_post_quant_conv.
};
TORCH_MODULE(AutoencoderKL);

}  // namespace darkroom
