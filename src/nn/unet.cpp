#include "darkroom/nn/unet.h"

#include <cmath>
#include <utility>

#include "darkroom/core/check.h"
#include "unet_blocks.h"

namespace darkroom {
namespace {

constexpr double kMaxPeriod = 10000;
constexpr int64_t kTimeExpansion = 4;  // Width of the time embedding over that of the first level.

// Sinusoidal features of timesteps (Vaswani et al. 2017, as in Ho et al. 2020): [N] -> float32 [N, width].
torch::Tensor timestep_features(const torch::Tensor& timesteps_n, int64_t width, const UNetConfig& config) {
  const int64_t half = width / 2;
  const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(timesteps_n.device());
  const auto exponents = -std::log(kMaxPeriod) * at::arange(half, options) / (static_cast<double>(half) - config.freq_shift);
  const auto angles = timesteps_n.unsqueeze(1).to(torch::kFloat32) * at::exp(exponents).unsqueeze(0);
  const auto features =
      config.flip_sin_to_cos ? at::cat({at::cos(angles), at::sin(angles)}, 1) : at::cat({at::sin(angles), at::cos(angles)}, 1);
  return width % 2 == 1 ? at::constant_pad_nd(features, {0, 1}) : features;
}

}  // namespace

UNet2DConditionModelImpl::UNet2DConditionModelImpl(UNetConfig config) : config_(std::move(config)) {
  const auto& levels = config_.levels;
  DARKROOM_CHECK(!levels.empty(), "a U-Net without levels");
  const int64_t first_channels = levels.front().num_channels;
  const UNetBlockContext context{config_, kTimeExpansion * first_channels};
  const size_t last = levels.size() - 1;

  conv_in_ = register_module("conv_in", Conv2d(config_.in_channels, first_channels, 3, 1, 1));
  time_embedding_ = register_module("time_embedding", TimestepEmbedding(first_channels, context.time_channels));
  if (config_.added_embedding) {
    add_embedding_ = register_module("add_embedding", TimestepEmbedding(config_.added_embedding->input_width, context.time_channels));
  }

  torch::nn::ModuleList down_list, up_list;
  for (size_t i = 0; i <= last; ++i) {
    const int64_t in_channels = levels[i == 0 ? 0 : i - 1].num_channels;
    down_blocks_.push_back(std::make_shared<UNetDownBlockImpl>(context, levels[i], in_channels, /*downsample=*/i < last));
    down_list->push_back(down_blocks_.back());
  }
  for (size_t i = 0; i <= last; ++i) {
    const size_t level = last - i;
    const UNetUpChannels channels{.previous = levels[i == 0 ? last : level + 1].num_channels,
                                  .next_skip = levels[level == 0 ? 0 : level - 1].num_channels};
    up_blocks_.push_back(std::make_shared<UNetUpBlockImpl>(context, levels[level], channels, /*upsample=*/level > 0));
    up_list->push_back(up_blocks_.back());
  }
  register_module("down_blocks", down_list);
  register_module("up_blocks", up_list);
  mid_block_ = register_module("mid_block", UNetMidBlock(context));
  conv_norm_out_ = register_module("conv_norm_out", GroupNorm(config_.norm_num_groups, first_channels, config_.norm_eps));
  conv_out_ = register_module("conv_out", Conv2d(first_channels, config_.out_channels, 3, 1, 1));
}

torch::Tensor UNet2DConditionModelImpl::embed_timesteps(const torch::Tensor& timesteps_n, const torch::Tensor& sample_nchw) {
  const auto timesteps = timesteps_n.reshape({-1}).expand({sample_nchw.size(0)}).to(sample_nchw.device());
  const auto features = timestep_features(timesteps, config_.levels.front().num_channels, config_);
  return time_embedding_->forward(features.to(sample_nchw.scalar_type()));
}

torch::Tensor UNet2DConditionModelImpl::embed_added(const AddedConditions& added, const torch::Tensor& sample_nchw) {
  const auto batch = sample_nchw.size(0);
  const auto& text = added.text_embeds_nc;
  const auto& sizes = added.time_ids_nk;
  DARKROOM_CHECK(text.dim() == 2 && sizes.dim() == 2 && text.size(0) == batch && sizes.size(0) == batch &&
                     text.size(1) + sizes.size(1) * config_.added_embedding->time_channels == config_.added_embedding->input_width,
                 "the U-Net's added conditions do not fit its config (width, text, sizes):", config_.added_embedding->input_width,
                 c10::str(text.sizes()), c10::str(sizes.sizes()));
  const auto features = timestep_features(sizes.flatten(), config_.added_embedding->time_channels, config_).reshape({batch, -1});
  return add_embedding_->forward(at::cat({text, features}, 1).to(sample_nchw.scalar_type()));
}

torch::Tensor UNet2DConditionModelImpl::forward(const torch::Tensor& sample_nchw, const torch::Tensor& timesteps_n,
                                                const torch::Tensor& states_btc) {
  return forward_known(sample_nchw, timesteps_n, TextStates(states_btc.to(conv_in_->weight().scalar_type())));
}

torch::Tensor UNet2DConditionModelImpl::forward_known(const torch::Tensor& sample_nchw, const torch::Tensor& timesteps_n,
                                                      const TextStates& states) {
  DARKROOM_CHECK(!add_embedding_, "this U-Net wants added conditions, too");
  const auto sample = sample_nchw.to(conv_in_->weight().scalar_type());
  return denoise(sample, embed_timesteps(timesteps_n, sample), states);
}

torch::Tensor UNet2DConditionModelImpl::forward_with(const torch::Tensor& sample_nchw, const torch::Tensor& timesteps_n,
                                                     const torch::Tensor& states_btc, const AddedConditions& added) {
  DARKROOM_CHECK(add_embedding_, "this U-Net takes no added conditions");
  const auto type = conv_in_->weight().scalar_type();
  const auto sample = sample_nchw.to(type);
  return denoise(sample, embed_timesteps(timesteps_n, sample) + embed_added(added, sample), TextStates(states_btc.to(type)));
}

torch::Tensor UNet2DConditionModelImpl::denoise(const torch::Tensor& sample_nchw, const torch::Tensor& time_embedding_nc,
                                                const TextStates& states) {
  const torch::Tensor& states_btc = states.states_ntw();
  DARKROOM_CHECK(sample_nchw.dim() == 4 && sample_nchw.size(1) == config_.in_channels,
                 "the U-Net wants a sample [N, channels, H, W] (channels, shape):", config_.in_channels, c10::str(sample_nchw.sizes()));
  DARKROOM_CHECK(states_btc.dim() == 3 && states_btc.size(0) == sample_nchw.size(0) && states_btc.size(2) == config_.states_width() &&
                     states_btc.scalar_type() == sample_nchw.scalar_type(),
                 "the U-Net wants text states [N, T, width] of its weights' type (width, shape, type):", config_.states_width(),
                 c10::str(states_btc.sizes()), c10::toString(states_btc.scalar_type()));
  const auto activated_time = at::silu(time_embedding_nc);
  auto hidden = conv_in_->forward(config_.center_input_sample ? 2 * sample_nchw - 1.0 : sample_nchw);
  std::vector<torch::Tensor> skips{hidden};
  for (auto& block : down_blocks_) {
    hidden = block->forward(hidden, activated_time, states, skips);
  }
  hidden = mid_block_->forward(hidden, activated_time, states);
  for (auto& block : up_blocks_) {
    hidden = block->forward(hidden, activated_time, states, skips);
  }
  // Inside a packed network features are channels-last.
  const auto prediction = conv_out_->forward(conv_norm_out_->forward_silu(hidden));
  return conv_out_->is_packed() ? prediction.contiguous() : prediction;
}

}  // namespace darkroom
