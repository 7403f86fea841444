#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "darkroom/core/check.h"
#include "original_checkpoint.h"

namespace darkroom {
namespace {

// Our name -> the original one: `rest` is what of our name is not translated yet.

bool take(std::string_view& rest, std::string_view prefix) {
  if (!rest.starts_with(prefix)) {
    return false;
  }
  rest.remove_prefix(prefix.size());
  return true;
}

// The number at the start of `rest`, with the dot behind it.
int64_t take_index(std::string_view& rest) {
  int64_t index = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  DARKROOM_CHECK(error == std::errc() && *end == '.', "a parameter's name lacks a number:", rest);
  rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
  return index;
}

struct Renaming {
  std::string_view ours;
  std::string_view original;
};

// Replaces the first part that the table knows at the start of `rest`; other names are the same in both.
template <size_t size>
std::string rename_start(const std::array<Renaming, size>& table, std::string_view rest) {
  for (const auto& [ours, original] : table) {
    if (take(rest, ours)) {
      return std::string(original) + std::string(rest);
    }
  }
  return std::string(rest);
}

std::string numbered(std::string_view name, int64_t index) { return std::string(name) + std::to_string(index) + "."; }

constexpr std::array<Renaming, 6> kUNetResnet = {{{"norm1.", "in_layers.0."},
                                                  {"conv1.", "in_layers.2."},
                                                  {"time_emb_proj.", "emb_layers.1."},
                                                  {"norm2.", "out_layers.0."},
                                                  {"conv2.", "out_layers.3."},
                                                  {"conv_shortcut.", "skip_connection."}}};

constexpr std::array<Renaming, 5> kUNetOutside = {{{"conv_in.", "input_blocks.0.0."},
                                                   {"time_embedding.linear_1.", "time_embed.0."},
                                                   {"time_embedding.linear_2.", "time_embed.2."},
                                                   {"conv_norm_out.", "out.0."},
                                                   {"conv_out.", "out.2."}}};

// input_blocks counts one number for conv_in, for every residual block and for every halving.
std::string unet_down_name(const UNetConfig& config, std::string_view rest) {
  const auto level = static_cast<size_t>(take_index(rest));
  int64_t first = 1;
  for (size_t i = 0; i < level; ++i) {
    first += config.levels[i].num_resnets + 1;
  }
  if (take(rest, "downsamplers.0.conv.")) {
    return numbered("input_blocks.", first + config.levels[level].num_resnets) + "0.op." + std::string(rest);
  }
  const bool is_resnet = take(rest, "resnets.");
  if (!is_resnet) {
    take(rest, "attentions.");
  }
  const std::string block = numbered("input_blocks.", first + take_index(rest));
  return is_resnet ? block + "0." + rename_start(kUNetResnet, rest) : block + "1." + std::string(rest);
}

// output_blocks counts one number for every residual block; a doubling stands behind the last one of its level.
std::string unet_up_name(const UNetConfig& config, std::string_view rest) {
  const auto block_index = static_cast<size_t>(take_index(rest));
  const UNetLevel& level = config.levels[config.levels.size() - 1 - block_index];
  int64_t first = 0;
  for (size_t i = 0; i < block_index; ++i) {
    first += config.levels[config.levels.size() - 1 - i].num_resnets + 1;
  }
  if (take(rest, "upsamplers.0.")) {
    return numbered(numbered("output_blocks.", first + level.num_resnets), level.up_attention ? 2 : 1) + std::string(rest);
  }
  const bool is_resnet = take(rest, "resnets.");
  if (!is_resnet) {
    take(rest, "attentions.");
  }
  const std::string block = numbered("output_blocks.", first + take_index(rest));
  return is_resnet ? block + "0." + rename_start(kUNetResnet, rest) : block + "1." + std::string(rest);
}

std::string unet_name(const UNetConfig& config, std::string_view rest) {
  if (take(rest, "down_blocks.")) {
    return unet_down_name(config, rest);
  }
  if (take(rest, "up_blocks.")) {
    return unet_up_name(config, rest);
  }
  if (take(rest, "mid_block.attentions.0.")) {
    return "middle_block.1." + std::string(rest);
  }
  if (take(rest, "mid_block.resnets.")) {
    const int64_t block = take_index(rest);
    return numbered("middle_block.", 2 * block) + rename_start(kUNetResnet, rest);
  }
  return rename_start(kUNetOutside, rest);
}

constexpr std::array<Renaming, 1> kVaeResnet = {{{"conv_shortcut.", "nin_shortcut."}}};
constexpr std::array<Renaming, 1> kVaeOutside = {{{"conv_norm_out.", "norm_out."}}};
constexpr std::array<Renaming, 5> kVaeAttention = {
    {{"group_norm.", "norm."}, {"to_q.", "q."}, {"to_k.", "k."}, {"to_v.", "v."}, {"to_out.0.", "proj_out."}}};

// The decoder counts its levels from the highest resolution, as the encoder does.
std::string vae_level_name(std::string_view rest, std::string_view level_name, int64_t level, const Renaming& sampler) {
  if (take(rest, sampler.ours)) {
    return numbered(level_name, level) + std::string(sampler.original) + std::string(rest);
  }
  take(rest, "resnets.");
  const int64_t block = take_index(rest);
  return numbered(numbered(level_name, level) + "block.", block) + rename_start(kVaeResnet, rest);
}

StoredPlace vae_place(const VaeConfig& config, std::string_view name) {
  std::string_view rest = name;
  const std::string half = take(rest, "encoder.") ? "encoder." : take(rest, "decoder.") ? "decoder." : "";
  const std::string prefix = kOriginalVaePrefix + half;
  if (take(rest, "down_blocks.")) {
    const int64_t level = take_index(rest);
    return {.tensor = prefix + vae_level_name(rest, "down.", level, {"downsamplers.0.", "downsample."})};
  }
  if (take(rest, "up_blocks.")) {
    const int64_t level = static_cast<int64_t>(config.block_out_channels.size()) - 1 - take_index(rest);
    return {.tensor = prefix + vae_level_name(rest, "up.", level, {"upsamplers.0.", "upsample."})};
  }
  if (take(rest, "mid_block.attentions.0.")) {
    return {.tensor = prefix + "mid.attn_1." + rename_start(kVaeAttention, rest), .is_1x1_convolution = true};
  }
  if (take(rest, "mid_block.resnets.")) {
    const int64_t block = take_index(rest);
    return {.tensor = prefix + numbered("mid.block_", block + 1) + rename_start(kVaeResnet, rest)};
  }
  return {.tensor = prefix + rename_start(kVaeOutside, rest)};
}

constexpr std::array<Renaming, 3> kOpenClipOutside = {{{"embeddings.token_embedding.weight", "token_embedding.weight"},
                                                       {"embeddings.position_embedding.weight", "positional_embedding"},
                                                       {"final_layer_norm.", "ln_final."}}};
constexpr std::array<Renaming, 5> kOpenClipLayer = {{{"layer_norm1.", "ln_1."},
                                                     {"layer_norm2.", "ln_2."},
                                                     {"mlp.fc1.", "mlp.c_fc."},
                                                     {"mlp.fc2.", "mlp.c_proj."},
                                                     {"self_attn.out_proj.", "attn.out_proj."}}};
constexpr std::array<std::string_view, 3> kFusedProjections = {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."};

// open_clip keeps queries, keys and values in one tensor.
StoredPlace open_clip_place(std::string_view rest) {
  take(rest, "text_model.");
  if (!take(rest, "encoder.layers.")) {
    return {.tensor = kOriginalOpenClipPrefix + rename_start(kOpenClipOutside, rest)};
  }
  const std::string layer = kOriginalOpenClipPrefix + numbered("transformer.resblocks.", take_index(rest));
  for (size_t i = 0; i < kFusedProjections.size(); ++i) {
    if (take(rest, kFusedProjections[i])) {
      return {.tensor = layer + "attn.in_proj_" + std::string(rest), .slice = static_cast<int64_t>(i), .num_slices = 3};
    }
  }
  return {.tensor = layer + rename_start(kOpenClipLayer, rest)};
}

// The published text encoder of version 2 ends before open_clip's last layer, and its projection is not used.
bool is_unused_by_open_clip(const std::string& stored, int64_t num_layers) {
  for (const char* name : {"text_projection", "logit_scale", "attn_mask"}) {
    if (stored == kOriginalOpenClipPrefix + std::string(name)) {
      return true;
    }
  }
  return stored.starts_with(kOriginalOpenClipPrefix + numbered("transformer.resblocks.", num_layers));
}

}  // namespace

WeightNaming original_unet_naming(const UNetConfig& config) {
  return {
      .places =
          [config](const std::string& name) { return std::vector<StoredPlace>{{.tensor = kOriginalUNetPrefix + unet_name(config, name)}}; },
      .is_foreign = [](const std::string& stored) { return !stored.starts_with(kOriginalUNetPrefix); }};
}

WeightNaming original_vae_naming(const VaeConfig& config) {
  return {.places = [config](const std::string& name) { return std::vector<StoredPlace>{vae_place(config, name)}; },
          .is_foreign = [](const std::string& stored) { return !stored.starts_with(kOriginalVaePrefix); }};
}

WeightNaming original_text_naming(const ClipTextConfig& config, bool is_open_clip) {
  if (is_open_clip) {
    const int64_t num_layers = config.num_hidden_layers;
    return {.places = [](const std::string& name) { return std::vector<StoredPlace>{open_clip_place(name)}; },
            .is_foreign =
                [num_layers](const std::string& stored) {
                  return !stored.starts_with(kOriginalTextPrefix) || is_unused_by_open_clip(stored, num_layers);
                }};
  }
  return {
      .places = [](const std::string& name) { return std::vector<StoredPlace>{{.tensor = kOriginalTextPrefix + ("transformer." + name)}}; },
      .is_foreign =
          [](const std::string& stored) { return !stored.starts_with(kOriginalTextPrefix) || stored.ends_with(".position_ids"); }};
}

}  // namespace darkroom
