#include "darkroom/nn/vae.h"

#include <utility>

#include "attention.h"
#include "darkroom/core/check.h"
#include "resnet.h"
#include "vae_blocks.h"

namespace darkroom {
namespace {

constexpr double kMinLogvar = -30;
constexpr double kMaxLogvar = 20;

}  // namespace

AutoencoderKLImpl::AutoencoderKLImpl(VaeConfig config) : config_(std::move(config)) {
  DARKROOM_CHECK(!config_.block_out_channels.empty(), "a VAE without levels");
  encoder_ = register_module("encoder", VaeEncoder(config_));
  decoder_ = register_module("decoder", VaeDecoder(config_));
  const int64_t moments = 2 * config_.latent_channels;
  if (config_.use_quant_conv) {
    quant_conv_ = register_module("quant_conv", Conv2d(moments, moments, 1));
  }
  if (config_.use_post_quant_conv) {
    post_quant_conv_ = register_module("post_quant_conv", Conv2d(config_.latent_channels, config_.latent_channels, 1));
  }
}

Moments AutoencoderKLImpl::encode(const torch::Tensor& image_nchw) {
  DARKROOM_CHECK(image_nchw.dim() == 4 && image_nchw.size(1) == config_.in_channels,
                 "the VAE wants an image [N, channels, H, W] (channels, shape):", config_.in_channels, c10::str(image_nchw.sizes()));
  auto moments = encoder_->forward(image_nchw);
  if (quant_conv_) {
    moments = quant_conv_->forward(moments);
  }
  const auto halves = moments.chunk(2, 1);
  return {.mean = halves[0], .logvar = at::clamp(halves[1], kMinLogvar, kMaxLogvar)};
}

torch::Tensor AutoencoderKLImpl::decode(const torch::Tensor& latents_nchw) {
  DARKROOM_CHECK(latents_nchw.dim() == 4 && latents_nchw.size(1) == config_.latent_channels,
                 "the VAE wants latents [N, channels, h, w] (channels, shape):", config_.latent_channels, c10::str(latents_nchw.sizes()));
  return decoder_->forward(post_quant_conv_ ? post_quant_conv_->forward(latents_nchw) : latents_nchw);
}

}  // namespace darkroom
