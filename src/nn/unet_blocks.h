#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "attention.h"
#include "darkroom/nn/unet.h"
#include "resnet.h"

namespace darkroom {

/// Two linear layers over the sinusoidal timestep features.
class TimestepEmbeddingImpl : public torch::nn::Module {
 public:
  TimestepEmbeddingImpl(int64_t num_features, int64_t num_channels);
  torch::Tensor forward(const torch::Tensor& features_nc);

 private:
  Linear linear_1_{nullptr}, linear_2_{nullptr};
};
TORCH_MODULE(TimestepEmbedding);

/// What every block of one U-Net shares.
struct UNetBlockContext {
  const UNetConfig& config;
  int64_t time_channels;
};

/// One level of the way down: residual blocks, each followed by a transformer where the level has attention; then the
/// halving. Appends what the way up needs to `skips`.
class UNetDownBlockImpl : public torch::nn::Module {
 public:
  UNetDownBlockImpl(const UNetBlockContext& context, const UNetLevel& level, int64_t in_channels, bool downsample);
  torch::Tensor forward(torch::Tensor hidden_nchw, const torch::Tensor& activated_time, const TextStates& states,
                        std::vector<torch::Tensor>& skips);

 private:
  std::vector<ResnetBlock> resnets_;
  std::vector<Transformer2D> attentions_;  // Empty, or one a residual block.
  Downsample downsampler_{nullptr};
};
TORCH_MODULE(UNetDownBlock);

/// The lowest level: residual block, transformer, residual block.
class UNetMidBlockImpl : public torch::nn::Module {
 public:
  explicit UNetMidBlockImpl(const UNetBlockContext& context);
  torch::Tensor forward(const torch::Tensor& hidden_nchw, const torch::Tensor& activated_time, const TextStates& states);

 private:
  ResnetBlock first_{nullptr}, second_{nullptr};
  Transformer2D attention_{nullptr};
};
TORCH_MODULE(UNetMidBlock);

/// Channels around one up block.
struct UNetUpChannels {
  int64_t previous = 0;   ///< Coming from below.
  int64_t next_skip = 0;  ///< Of the last skip, which the level above made.
};

/// One level of the way up: takes its skips from the end of `skips`, mirrors the down block, then doubles the size to that of
/// the next skip.
class UNetUpBlockImpl : public torch::nn::Module {
 public:
  UNetUpBlockImpl(const UNetBlockContext& context, const UNetLevel& level, const UNetUpChannels& channels, bool upsample);
  torch::Tensor forward(torch::Tensor hidden_nchw, const torch::Tensor& activated_time, const TextStates& states,
                        std::vector<torch::Tensor>& skips);

 private:
  std::vector<ResnetBlock> resnets_;
  std::vector<Transformer2D> attentions_;  // Empty, or one a residual block.
  Upsample upsampler_{nullptr};
};
TORCH_MODULE(UNetUpBlock);

}  // namespace darkroom
