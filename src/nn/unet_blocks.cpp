#include "unet_blocks.h"

#include <string>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

ResnetOptions resnet_options(const UNetBlockContext& context, int64_t in_channels, int64_t out_channels) {
  return {.in_channels = in_channels,
          .out_channels = out_channels,
          .time_channels = context.time_channels,
          .norm_num_groups = context.config.norm_num_groups,
          .eps = context.config.norm_eps};
}

Transformer2DOptions transformer_options(const UNetBlockContext& context, const UNetLevel& level) {
  return {.num_channels = level.num_channels,
          .states_width = level.states_width,
          .num_heads = level.num_heads,
          .num_layers = level.num_transformer_layers,
          .norm_num_groups = context.config.norm_num_groups,
          .use_linear_projection = context.config.use_linear_projection};
}

template <typename Holder>
torch::nn::ModuleList module_list(const std::vector<Holder>& modules) {
  torch::nn::ModuleList list;
  for (const auto& module : modules) {
    list->push_back(module);
  }
  return list;
}

}  // namespace

TimestepEmbeddingImpl::TimestepEmbeddingImpl(int64_t num_features, int64_t num_channels) {
  linear_1_ = register_module("linear_1", Linear(num_features, num_channels));
  linear_2_ = register_module("linear_2", Linear(num_channels, num_channels));
}

torch::Tensor TimestepEmbeddingImpl::forward(const torch::Tensor& features_nc) { return linear_2_(at::silu(linear_1_(features_nc))); }

UNetDownBlockImpl::UNetDownBlockImpl(const UNetBlockContext& context, const UNetLevel& level, int64_t in_channels, bool downsample) {
  for (int64_t i = 0; i < level.num_resnets; ++i) {
    resnets_.emplace_back(resnet_options(context, i == 0 ? in_channels : level.num_channels, level.num_channels));
    if (level.down_attention) {
      attentions_.emplace_back(transformer_options(context, level));
    }
  }
  if (level.down_attention) {
    register_module("attentions", module_list(attentions_));
  }
  register_module("resnets", module_list(resnets_));
  if (downsample) {
    downsampler_ = Downsample(level.num_channels, context.config.downsample_padding);
    register_module("downsamplers", torch::nn::ModuleList(downsampler_));
  }
}

torch::Tensor UNetDownBlockImpl::forward(torch::Tensor hidden_nchw, const torch::Tensor& activated_time, const TextStates& states,
                                         std::vector<torch::Tensor>& skips) {
  for (size_t i = 0; i < resnets_.size(); ++i) {
    hidden_nchw = resnets_[i](hidden_nchw, activated_time);
    if (!attentions_.empty()) {
      hidden_nchw = attentions_[i](hidden_nchw, states);
    }
    skips.push_back(hidden_nchw);
  }
  if (downsampler_) {
    hidden_nchw = downsampler_(hidden_nchw);
    skips.push_back(hidden_nchw);
  }
  return hidden_nchw;
}

UNetMidBlockImpl::UNetMidBlockImpl(const UNetBlockContext& context) {
  const UNetLevel& level = context.config.levels.back();
  const auto options = resnet_options(context, level.num_channels, level.num_channels);
  first_ = ResnetBlock(options);
  second_ = ResnetBlock(options);
  attention_ = Transformer2D(transformer_options(context, level));
  register_module("attentions", torch::nn::ModuleList(attention_));
  register_module("resnets", torch::nn::ModuleList(first_, second_));
}

torch::Tensor UNetMidBlockImpl::forward(const torch::Tensor& hidden_nchw, const torch::Tensor& activated_time, const TextStates& states) {
  return second_(attention_(first_(hidden_nchw, activated_time), states), activated_time);
}

UNetUpBlockImpl::UNetUpBlockImpl(const UNetBlockContext& context, const UNetLevel& level, const UNetUpChannels& channels, bool upsample) {
  const int64_t num_resnets = level.num_resnets + 1;
  for (int64_t i = 0; i < num_resnets; ++i) {
    const int64_t from_below = i == 0 ? channels.previous : level.num_channels;
    const int64_t from_skip = i == num_resnets - 1 ? channels.next_skip : level.num_channels;
    resnets_.emplace_back(resnet_options(context, from_below + from_skip, level.num_channels));
    if (level.up_attention) {
      attentions_.emplace_back(transformer_options(context, level));
    }
  }
  if (level.up_attention) {
    register_module("attentions", module_list(attentions_));
  }
  register_module("resnets", module_list(resnets_));
  if (upsample) {
    upsampler_ = Upsample(level.num_channels);
    register_module("upsamplers", torch::nn::ModuleList(upsampler_));
  }
}

torch::Tensor UNetUpBlockImpl::forward(torch::Tensor hidden_nchw, const torch::Tensor& activated_time, const TextStates& states,
                                       std::vector<torch::Tensor>& skips) {
  for (size_t i = 0; i < resnets_.size(); ++i) {
    DARKROOM_CHECK(!skips.empty(), "the U-Net's way up ran out of skips");
    hidden_nchw = resnets_[i](at::cat({hidden_nchw, skips.back()}, 1), activated_time);
    skips.pop_back();
    if (!attentions_.empty()) {
      hidden_nchw = attentions_[i](hidden_nchw, states);
    }
  }
  if (upsampler_) {
    DARKROOM_CHECK(!skips.empty(), "the U-Net's way up has no skip to take its size from");
    hidden_nchw = upsampler_(hidden_nchw, skips.back().size(2), skips.back().size(3));
  }
  return hidden_nchw;
}

}  // namespace darkroom
