#include <algorithm>
#include <optional>
#include <utility>

#include "original_checkpoint.h"

namespace darkroom {
namespace {

constexpr int64_t kHeadChannels = 64;  // Of version 2's U-Net and of every text encoder; version 1's U-Net has 8 heads everywhere.

// The shapes of one part's tensors. The first tensor that is asked for and missing is kept, so that a reader is a flat list of calls.
class PartShapes {
 public:
  PartShapes(const WeightFiles& weights, std::string prefix) : weights_(weights), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const { return weights_.tensors().contains(prefix_ + name); }
  bool has_any() const { return has_prefix(weights_, prefix_); }

  // Size of one dimension of a tensor that every such part has; 1 after a fault.
  int64_t size(const std::string& name, size_t dimension) {
    const auto found = weights_.tensors().find(prefix_ + name);
    if (found == weights_.tensors().end()) {
      note(name, "is missing");
      return 1;
    }
    const auto shape = found->second->spec(found->first).value().shape;
    if (dimension >= shape.size()) {
      note(name, "has too few dimensions");
      return 1;
    }
    if (std::ranges::find(shape, 0) != shape.end()) {  // Its other dimensions cost the file nothing.
      note(name, "is empty");
      return 1;
    }
    return shape[dimension];
  }

  size_t num_dimensions(const std::string& name) const {
    const auto found = weights_.tensors().find(prefix_ + name);
    return found == weights_.tensors().end() ? 0 : found->second->spec(found->first).value().shape.size();
  }

  // How many of before + "0" + after, before + "1" + after, ... are there.
  int64_t count(const std::string& before, const std::string& after) const {
    int64_t number = 0;
    while (has(before + std::to_string(number) + after)) {
      ++number;
    }
    return number;
  }

  Status missing_part(const std::string& part) const {
    return Status::not_found("the file holds no " + part + " of an original checkpoint (want tensors, file):", prefix_ + "*", file());
  }
  Status status() const { return status_; }
  std::string file() const { return weights_.tensors().empty() ? std::string() : weights_.tensors().begin()->second->path(); }

 private:
  void note(const std::string& name, const std::string& fault) {
    if (status_.is_ok()) {
      status_ = Status::failed_precondition(
          "read the architecture off an original checkpoint: a tensor " + fault + " (tensor, file):", prefix_ + name, file());
    }
  }

  const WeightFiles& weights_;
  std::string prefix_;
  Status status_;
};

std::string block_name(const std::string& list, int64_t index) { return list + std::to_string(index); }

// Walks input_blocks: residual blocks of a level, then its halving, until the numbers end.
std::vector<UNetLevel> unet_levels(PartShapes& shapes, bool is_linear, int64_t states_width) {
  std::vector<UNetLevel> levels;
  for (int64_t index = 1;;) {
    UNetLevel level{.num_resnets = 0, .states_width = states_width};
    std::string block = block_name("input_blocks.", index);
    const std::string first = block;
    for (; shapes.has(block + ".0.in_layers.2.weight"); block = block_name("input_blocks.", ++index)) {
      ++level.num_resnets;
    }
    level.num_channels = shapes.size(first + ".0.in_layers.2.weight", 0);
    level.down_attention = shapes.has(first + ".1.proj_in.weight");
    level.num_transformer_layers = std::max<int64_t>(1, shapes.count(first + ".1.transformer_blocks.", ".norm1.weight"));
    level.num_heads = is_linear ? std::max<int64_t>(1, level.num_channels / kHeadChannels) : 8;
    levels.push_back(level);
    if (!shapes.has(block + ".0.op.weight")) {
      return levels;
    }
    ++index;
  }
}

void read_up_attention(const PartShapes& shapes, std::vector<UNetLevel>& levels) {
  int64_t index = 0;
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    level->up_attention = shapes.has(block_name("output_blocks.", index) + ".1.proj_in.weight");
    index += level->num_resnets + 1;
  }
}

// Layers and widths of a text encoder; `layer` is what stands before a layer's number.
ClipTextConfig text_sizes(PartShapes& shapes, const std::string& tokens, const std::string& positions, const std::string& layer,
                          const std::string& first_linear) {
  ClipTextConfig config;
  config.vocab_size = shapes.size(tokens, 0);
  config.hidden_size = shapes.size(tokens, 1);
  config.max_position_embeddings = shapes.size(positions, 0);
  config.intermediate_size = shapes.size(layer + "0." + first_linear, 0);
  config.num_hidden_layers = shapes.count(layer, "." + first_linear);
  config.num_attention_heads = std::max<int64_t>(1, config.hidden_size / kHeadChannels);
  // As the published config.json of both versions; nothing here depends on them.
  config.bos_token_id = 0;
  config.eos_token_id = 2;
  config.pad_token_id = 1;
  return config;
}

// The checks of a config.json hold for a config that shapes tell, too.
template <typename Config>
Result<Config> checked(const Config& config, const std::string& file) {
  auto result = Config::from_json(config.to_json());
  if (!result.is_ok()) {
    return result.status().with_context("read the architecture off an original checkpoint " + file);
  }
  return result;
}

}  // namespace

bool has_prefix(const WeightFiles& weights, const std::string& prefix) {
  const auto found = weights.tensors().lower_bound(prefix);
  return found != weights.tensors().end() && found->first.starts_with(prefix);
}

Result<UNetConfig> original_unet_config(const WeightFiles& weights) {
  PartShapes shapes(weights, kOriginalUNetPrefix);
  if (!shapes.has_any()) {
    return shapes.missing_part("U-Net");
  }
  if (shapes.has("label_emb.0.0.weight")) {
    return Status::failed_precondition("this single file is of SDXL; give its folder in the diffusers layout instead (file):",
                                       shapes.file());
  }
  const std::string middle = "middle_block.1.";
  const bool is_linear = shapes.num_dimensions(middle + "proj_in.weight") == 2;
  UNetConfig config;
  config.in_channels = shapes.size("input_blocks.0.0.weight", 1);
  config.out_channels = shapes.size("out.2.weight", 0);
  config.use_linear_projection = is_linear;
  config.levels = unet_levels(shapes, is_linear, shapes.size(middle + "transformer_blocks.0.attn2.to_k.weight", 1));
  read_up_attention(shapes, config.levels);
  DARKROOM_RETURN_IF_ERROR(shapes.status());
  return checked(config, shapes.file());
}

Result<VaeConfig> original_vae_config(const WeightFiles& weights) {
  PartShapes shapes(weights, kOriginalVaePrefix);
  if (!shapes.has_any()) {
    return shapes.missing_part("VAE");
  }
  VaeConfig config;
  // As the published config.json; nothing here depends on it.
  config.sample_size = has_prefix(weights, kOriginalOpenClipPrefix) ? 768 : 512;
  config.in_channels = shapes.size("encoder.conv_in.weight", 1);
  config.out_channels = shapes.size("decoder.conv_out.weight", 0);
  config.latent_channels = shapes.size("decoder.conv_in.weight", 1);
  config.layers_per_block = shapes.count("encoder.down.0.block.", ".conv1.weight");
  config.block_out_channels.clear();
  const int64_t num_levels = std::max<int64_t>(1, shapes.count("encoder.down.", ".block.0.conv1.weight"));
  for (int64_t level = 0; level < num_levels; ++level) {
    config.block_out_channels.push_back(shapes.size(block_name("encoder.down.", level) + ".block.0.conv1.weight", 0));
  }
  config.use_quant_conv = shapes.has("quant_conv.weight");
  config.use_post_quant_conv = shapes.has("post_quant_conv.weight");
  config.mid_block_add_attention = shapes.has("encoder.mid.attn_1.q.weight");
  DARKROOM_RETURN_IF_ERROR(shapes.status());
  return checked(config, shapes.file());
}

Result<ClipTextConfig> original_text_config(const WeightFiles& weights) {
  const bool is_open_clip = has_prefix(weights, kOriginalOpenClipPrefix);
  PartShapes shapes(weights, is_open_clip ? kOriginalOpenClipPrefix : kOriginalTextPrefix);
  if (!shapes.has_any()) {
    return shapes.missing_part("text encoder");
  }
  ClipTextConfig config;
  if (is_open_clip) {
    config = text_sizes(shapes, "token_embedding.weight", "positional_embedding", "transformer.resblocks.", "mlp.c_fc.weight");
    config.num_hidden_layers -= 1;  // The states of version 2 are those before the last layer.
    config.hidden_act = ClipActivation::kGelu;
  } else {
    const std::string model = "transformer.text_model.";
    config = text_sizes(shapes, model + "embeddings.token_embedding.weight", model + "embeddings.position_embedding.weight",
                        model + "encoder.layers.", "mlp.fc1.weight");
    config.hidden_act = ClipActivation::kQuickGelu;
    config.projection_dim = 768;
  }
  DARKROOM_RETURN_IF_ERROR(shapes.status());
  return checked(config, shapes.file());
}

}  // namespace darkroom
