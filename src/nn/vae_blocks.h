#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "attention.h"
#include "darkroom/nn/vae.h"
#include "resnet.h"

namespace darkroom {

/// Residual block, attention over pixels (where the config has it), residual block.
class VaeMidBlockImpl : public torch::nn::Module {
 public:
  explicit VaeMidBlockImpl(const VaeConfig& config);
  torch::Tensor forward(const torch::Tensor& x_nchw);

 private:
  ResnetBlock first_{nullptr}, second_{nullptr};
  PixelAttention attention_{nullptr};
};
TORCH_MODULE(VaeMidBlock);

/// One level: residual blocks, then a halving (encoder) or a doubling (decoder) where there is a further level.
class VaeDownBlockImpl : public torch::nn::Module {
 public:
  VaeDownBlockImpl(const VaeConfig& config, int64_t in_channels, int64_t out_channels, bool downsample);
  torch::Tensor forward(torch::Tensor x_nchw);

 private:
  std::vector<ResnetBlock> resnets_;
  Downsample downsampler_{nullptr};
};
TORCH_MODULE(VaeDownBlock);

class VaeUpBlockImpl : public torch::nn::Module {
 public:
  VaeUpBlockImpl(const VaeConfig& config, int64_t in_channels, int64_t out_channels, bool upsample);
  torch::Tensor forward(torch::Tensor x_nchw);

 private:
  std::vector<ResnetBlock> resnets_;
  Upsample upsampler_{nullptr};
};
TORCH_MODULE(VaeUpBlock);

/// Image -> twice the latent channels (before the quant convolution).
class VaeEncoderImpl : public torch::nn::Module {
 public:
  explicit VaeEncoderImpl(const VaeConfig& config);
  torch::Tensor forward(const torch::Tensor& image_nchw);

 private:
  Conv2d conv_in_{nullptr}, conv_out_{nullptr};
  std::vector<VaeDownBlock> down_blocks_;
  VaeMidBlock mid_block_{nullptr};
  GroupNorm conv_norm_out_{nullptr};
};
TORCH_MODULE(VaeEncoder);

/// Latents -> image.
class VaeDecoderImpl : public torch::nn::Module {
 public:
  explicit VaeDecoderImpl(const VaeConfig& config);
  torch::Tensor forward(const torch::Tensor& latents_nchw);

 private:
  Conv2d conv_in_{nullptr}, conv_out_{nullptr};
  std::vector<VaeUpBlock> up_blocks_;
  VaeMidBlock mid_block_{nullptr};
  GroupNorm conv_norm_out_{nullptr};
};
TORCH_MODULE(VaeDecoder);

}  // namespace darkroom
