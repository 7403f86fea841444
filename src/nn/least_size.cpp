#include "least_size.h"

namespace darkroom {
namespace {

double squared(int64_t width) { return static_cast<double>(width) * static_cast<double>(width); }

// A convolution of 3 x 3 from `width` channels to as many.
double convolution_size(int64_t width) { return 9 * squared(width); }

// Attention to itself and the feed-forward part, and what reads the text.
double transformer_size(const UNetLevel& level) {
  constexpr double kSquares = 16;
  return kSquares * squared(level.num_channels) + 2 * static_cast<double>(level.num_channels) * static_cast<double>(level.states_width);
}

// The layers of a CLIP: attention and two linear ones each.
LeastSize layers_size(int64_t num_layers, int64_t hidden_size, int64_t intermediate_size) {
  const auto layers = static_cast<double>(num_layers), hidden = static_cast<double>(hidden_size);
  return {.tensors = layers, .parameters = layers * hidden * (4 * hidden + 2 * static_cast<double>(intermediate_size))};
}

}  // namespace

LeastSize least_size(const ClipTextConfig& config) {
  LeastSize least = layers_size(config.num_hidden_layers, config.hidden_size, config.intermediate_size);
  double rows = static_cast<double>(config.vocab_size) + static_cast<double>(config.max_position_embeddings);
  rows += config.with_projection ? static_cast<double>(config.projection_dim) : 0;
  least.parameters += static_cast<double>(config.hidden_size) * rows;
  return least;
}

LeastSize least_size(const ClipVisionConfig& config) {
  LeastSize least = layers_size(config.num_hidden_layers, config.hidden_size, config.intermediate_size);
  const double num_patches = squared(config.image_size / config.patch_size);
  const double rows = num_patches + 3 * squared(config.patch_size) + static_cast<double>(config.projection_dim);
  least.parameters += static_cast<double>(config.hidden_size) * rows;
  return least;
}

LeastSize least_size(const VaeConfig& config) {
  const auto blocks = static_cast<double>(config.layers_per_block);
  LeastSize least{.parameters = 9 * static_cast<double>(config.latent_channels) * static_cast<double>(config.block_out_channels.back())};
  for (const int64_t channels : config.block_out_channels) {
    least.tensors += 2 * blocks;
    least.parameters += 2 * blocks * convolution_size(channels);  // Down and up.
  }
  return least;
}

LeastSize least_size(const UNetConfig& config) {
  const auto middle_layers = static_cast<double>(config.levels.back().num_transformer_layers);
  LeastSize least{.tensors = middle_layers, .parameters = middle_layers * transformer_size(config.levels.back())};
  least.parameters +=
      9 * static_cast<double>(config.in_channels + config.out_channels) * static_cast<double>(config.levels.front().num_channels);
  for (const UNetLevel& level : config.levels) {
    const auto resnets = static_cast<double>(level.num_resnets);
    const double attended = static_cast<double>(level.down_attention) + static_cast<double>(level.up_attention);
    const double layers = attended * resnets * static_cast<double>(level.num_transformer_layers);
    least.tensors += 2 * resnets + layers;
    least.parameters += 2 * resnets * convolution_size(level.num_channels) + layers * transformer_size(level);
  }
  return least;
}

Status check_fits(const LeastSize& least, const WeightFiles& weights, const std::string& source) {
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_stored, weights.count_elements());
  if (least.tensors <= static_cast<double>(weights.tensors().size()) && least.parameters <= static_cast<double>(num_stored)) {
    return Status::ok();
  }
  return Status::failed_precondition(
      "weights do not fit their config: it describes a larger network than they are of (folder, tensors at the least, stored, "
      "parameters at the least, stored):",
      source, least.tensors, weights.tensors().size(), least.parameters, num_stored);
}

}  // namespace darkroom
