#include "vae_blocks.h"

namespace darkroom {
namespace {

constexpr double kNormEps = 1e-6;  // diffusers Encoder, Decoder and UNetMidBlock2D.

ResnetOptions resnet_options(const VaeConfig& config, int64_t in_channels, int64_t out_channels) {
  return {.in_channels = in_channels, .out_channels = out_channels, .norm_num_groups = config.norm_num_groups, .eps = kNormEps};
}

// Builds the residual blocks of one level and registers them as `resnets`.
std::vector<ResnetBlock> add_resnets(torch::nn::Module& owner, const VaeConfig& config, int64_t num_resnets, int64_t in_channels,
                                     int64_t out_channels) {
  std::vector<ResnetBlock> resnets;
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < num_resnets; ++i) {
    resnets.emplace_back(resnet_options(config, i == 0 ? in_channels : out_channels, out_channels));
    list->push_back(resnets.back());
  }
  owner.register_module("resnets", list);
  return resnets;
}

}  // namespace

VaeMidBlockImpl::VaeMidBlockImpl(const VaeConfig& config) {
  const int64_t channels = config.block_out_channels.back();
  first_ = ResnetBlock(resnet_options(config, channels, channels));
  second_ = ResnetBlock(resnet_options(config, channels, channels));
  if (config.mid_block_add_attention) {
    attention_ = PixelAttention(channels, config.norm_num_groups, kNormEps);
    register_module("attentions", torch::nn::ModuleList(attention_));
  }
  register_module("resnets", torch::nn::ModuleList(first_, second_));
}

torch::Tensor VaeMidBlockImpl::forward(const torch::Tensor& x_nchw) {
  const auto hidden = first_(x_nchw);
  return second_(attention_ ? attention_(hidden) : hidden);
}

VaeDownBlockImpl::VaeDownBlockImpl(const VaeConfig& config, int64_t in_channels, int64_t out_channels, bool downsample)
    : resnets_(add_resnets(*this, config, config.layers_per_block, in_channels, out_channels)) {
  if (downsample) {
    downsampler_ = Downsample(out_channels, /*padding=*/0);
    register_module("downsamplers", torch::nn::ModuleList(downsampler_));
  }
}

torch::Tensor VaeDownBlockImpl::forward(torch::Tensor x_nchw) {
  for (auto& resnet : resnets_) {
    x_nchw = resnet(x_nchw);
  }
  return downsampler_ ? downsampler_(x_nchw) : x_nchw;
}

VaeUpBlockImpl::VaeUpBlockImpl(const VaeConfig& config, int64_t in_channels, int64_t out_channels, bool upsample)
    : resnets_(add_resnets(*this, config, config.layers_per_block + 1, in_channels, out_channels)) {
  if (upsample) {
    upsampler_ = Upsample(out_channels);
    register_module("upsamplers", torch::nn::ModuleList(upsampler_));
  }
}

torch::Tensor VaeUpBlockImpl::forward(torch::Tensor x_nchw) {
  for (auto& resnet : resnets_) {
    x_nchw = resnet(x_nchw);
  }
  return upsampler_ ? upsampler_(x_nchw, 2 * x_nchw.size(2), 2 * x_nchw.size(3)) : x_nchw;
}

VaeEncoderImpl::VaeEncoderImpl(const VaeConfig& config) {
  const auto& channels = config.block_out_channels;
  conv_in_ = register_module("conv_in", Conv2d(config.in_channels, channels.front(), 3, 1, 1));
  torch::nn::ModuleList list;
  for (size_t i = 0; i < channels.size(); ++i) {
    down_blocks_.emplace_back(config, channels[i == 0 ? 0 : i - 1], channels[i], /*downsample=*/i + 1 < channels.size());
    list->push_back(down_blocks_.back());
  }
  register_module("down_blocks", list);
  mid_block_ = register_module("mid_block", VaeMidBlock(config));
  conv_norm_out_ = register_module("conv_norm_out", GroupNorm(config.norm_num_groups, channels.back(), kNormEps));
  conv_out_ = register_module("conv_out", Conv2d(channels.back(), 2 * config.latent_channels, 3, 1, 1));
}

torch::Tensor VaeEncoderImpl::forward(const torch::Tensor& image_nchw) {
  auto hidden = conv_in_(image_nchw);
  for (auto& block : down_blocks_) {
    hidden = block(hidden);
  }
  return conv_out_(conv_norm_out_->forward_silu(mid_block_(hidden)));
}

VaeDecoderImpl::VaeDecoderImpl(const VaeConfig& config) {
  const auto& channels = config.block_out_channels;
  conv_in_ = register_module("conv_in", Conv2d(config.latent_channels, channels.back(), 3, 1, 1));
  mid_block_ = register_module("mid_block", VaeMidBlock(config));
  torch::nn::ModuleList list;
  for (size_t i = channels.size(); i-- > 0;) {
    const size_t below = i + 1 < channels.size() ? i + 1 : i;
    up_blocks_.emplace_back(config, channels[below], channels[i], /*upsample=*/i > 0);
    list->push_back(up_blocks_.back());
  }
  register_module("up_blocks", list);
  conv_norm_out_ = register_module("conv_norm_out", GroupNorm(config.norm_num_groups, channels.front(), kNormEps));
  conv_out_ = register_module("conv_out", Conv2d(channels.front(), config.out_channels, 3, 1, 1));
}

torch::Tensor VaeDecoderImpl::forward(const torch::Tensor& latents_nchw) {
  auto hidden = mid_block_(conv_in_(latents_nchw));
  for (auto& block : up_blocks_) {
    hidden = block(hidden);
  }
  return conv_out_(conv_norm_out_->forward_silu(hidden));
}

}  // namespace darkroom
