#include <algorithm>

#include "config_reader.h"
#include "darkroom/nn/unet.h"
#include "diffusers_version.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr const char* kUNetClassName = "UNet2DConditionModel";

// The published lists before they are folded into levels; defaults are diffusers'.
struct PublishedLists {
  std::vector<std::string> down_types = {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"};
  std::vector<std::string> up_types = {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"};
  std::vector<int64_t> channels = {320, 640, 1280, 1280};
  std::vector<int64_t> num_resnets, num_heads, num_transformer_layers, states_width;
};

PublishedLists read_lists(ConfigReader& reader) {
  PublishedLists lists;
  reader.read("block_out_channels", lists.channels, 1);
  reader.read("down_block_types", lists.down_types);
  reader.read("up_block_types", lists.up_types);
  const size_t count = lists.channels.size();
  const auto read_levels = [&](const char* key, std::vector<int64_t>& list, int64_t fallback) {
    list.assign(count, fallback);
    reader.read_levels(key, list, count, 1);
  };
  read_levels("layers_per_block", lists.num_resnets, 2);
  read_levels("attention_head_dim", lists.num_heads, 8);
  read_levels("transformer_layers_per_block", lists.num_transformer_layers, 1);
  read_levels("cross_attention_dim", lists.states_width, 1280);
  if (lists.down_types.size() != count) {
    reader.refuse("down_block_types", "want one block a number of block_out_channels");
  }
  if (lists.up_types.size() != count) {
    reader.refuse("up_block_types", "want one block a number of block_out_channels");
  }
  return lists;
}

// Whether a block type has attention; refuses types that are neither.
bool has_attention(ConfigReader& reader, const char* key, const std::string& type, const char* with, const char* without) {
  if (type != with && type != without) {
    reader.refuse(key, "block type '" + type + "' is not supported; supported: " + with + ", " + without);
  }
  return type == with;
}

std::vector<UNetLevel> fold_levels(ConfigReader& reader, const PublishedLists& lists) {
  std::vector<UNetLevel> levels;
  const size_t count = lists.channels.size();
  for (size_t i = 0; i < count && !reader.failed(); ++i) {
    levels.push_back(
        {.num_channels = lists.channels[i],
         .down_attention = has_attention(reader, "down_block_types", lists.down_types[i], "CrossAttnDownBlock2D", "DownBlock2D"),
         .up_attention = has_attention(reader, "up_block_types", lists.up_types[count - 1 - i], "CrossAttnUpBlock2D", "UpBlock2D"),
         .num_resnets = lists.num_resnets[i],
         .num_heads = lists.num_heads[i],
         .num_transformer_layers = lists.num_transformer_layers[i],
         .states_width = lists.states_width[i]});
  }
  return levels;
}

// Refuses every feature of diffusers' class that the networks of this program do not have.
void refuse_other_features(ConfigReader& reader) {
  for (const char* key : {"reverse_transformer_layers_per_block", "encoder_hid_dim", "encoder_hid_dim_type", "num_attention_heads",
                          "class_embed_type", "num_class_embeds", "time_embedding_dim", "time_embedding_act_fn", "timestep_post_act",
                          "time_cond_proj_dim", "cross_attention_norm"}) {
    reader.only(key, {});
  }
  for (const char* key : {"dual_cross_attention", "resnet_skip_time_act", "class_embeddings_concat", "mid_block_only_cross_attention"}) {
    reader.only(key, {false});
  }
  reader.only("mid_block_type", {"UNetMidBlock2DCrossAttn"});
  reader.only("act_fn", {"silu", "swish"});
  reader.only("resnet_time_scale_shift", {"default"});
  reader.only("time_embedding_type", {"positional"});
  reader.only("attention_type", {"default"});
  reader.only("mid_block_scale_factor", {1});
  reader.only("resnet_out_scale_factor", {1});
  reader.only("conv_in_kernel", {3});
  reader.only("conv_out_kernel", {3});
  reader.only("dropout", {0});
  reader.ignore({"addition_embed_type_num_heads"});  // Used with addition_embed_type only.
}

void read_added_embedding(ConfigReader& reader, const json& config, UNetConfig& result) {
  reader.only("addition_embed_type", {"text_time"});
  if (config.value("addition_embed_type", json()).is_null()) {
    reader.only("addition_time_embed_dim", {});
    reader.only("projection_class_embeddings_input_dim", {});
    return;
  }
  result.added_embedding = UNetAddedEmbedding();
  reader.read("addition_time_embed_dim", result.added_embedding->time_channels, 2);
  reader.read("projection_class_embeddings_input_dim", result.added_embedding->input_width, 1);
}

void check_only_cross_attention(ConfigReader& reader, const json& config) {
  const auto field = config.find("only_cross_attention");
  const bool all_false = field == config.end() || field->is_null() || *field == false ||
                         (field->is_array() && std::ranges::all_of(*field, [](const json& item) { return item == false; }));
  if (!all_false) {
    reader.refuse("only_cross_attention", "blocks without self-attention are not supported");
  }
  reader.ignore({"only_cross_attention"});
}

void check_widths(ConfigReader& reader, const UNetConfig& config) {
  for (size_t i = 0; i < config.levels.size(); ++i) {
    const UNetLevel& level = config.levels[i];
    const bool attends = level.down_attention || level.up_attention || i + 1 == config.levels.size();
    if (level.num_channels % config.norm_num_groups != 0) {
      reader.refuse("norm_num_groups", "every number of block_out_channels must be a multiple of it");
    }
    if (attends && level.num_channels % level.num_heads != 0) {
      reader.refuse("attention_head_dim", "it is the number of heads and must divide the level's block_out_channels");
    }
    if (level.states_width != config.levels.front().states_width) {
      reader.refuse("cross_attention_dim", "different widths a level are not supported");
    }
  }
}

// One number when all levels agree, otherwise the list.
json levels_to_json(const std::vector<UNetLevel>& levels, int64_t UNetLevel::*field) {
  std::vector<int64_t> values;
  for (const UNetLevel& level : levels) {
    values.push_back(level.*field);
  }
  const bool all_equal = std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end();
  return all_equal ? json(values.front()) : json(values);
}

}  // namespace

Result<UNetConfig> UNetConfig::from_json(const json& config) {
  ConfigReader reader(config, kUNetClassName);
  reader.require_class("_class_name");
  UNetConfig result;
  reader.read_size("sample_size", result.sample_size);
  reader.read("in_channels", result.in_channels, 1);
  reader.read("out_channels", result.out_channels, 1);
  reader.read("use_linear_projection", result.use_linear_projection);
  reader.read("upcast_attention", result.upcast_attention);
  reader.read("center_input_sample", result.center_input_sample);
  reader.read("flip_sin_to_cos", result.flip_sin_to_cos);
  reader.read("freq_shift", result.freq_shift);
  reader.read("downsample_padding", result.downsample_padding, 0);
  reader.read("norm_num_groups", result.norm_num_groups, 1);
  reader.read("norm_eps", result.norm_eps);
  const auto lists = read_lists(reader);
  refuse_other_features(reader);
  DARKROOM_RETURN_IF_ERROR(reader.status());
  read_added_embedding(reader, config, result);
  check_only_cross_attention(reader, config);
  reader.refuse_unknown();
  result.levels = fold_levels(reader, lists);
  check_widths(reader, result);
  DARKROOM_RETURN_IF_ERROR(reader.status());
  return result;
}

json UNetConfig::to_json() const {
  json down_types = json::array(), up_types = json::array(), channels = json::array();
  for (size_t i = 0; i < levels.size(); ++i) {
    channels.push_back(levels[i].num_channels);
    down_types.push_back(levels[i].down_attention ? "CrossAttnDownBlock2D" : "DownBlock2D");
    up_types.push_back(levels[levels.size() - 1 - i].up_attention ? "CrossAttnUpBlock2D" : "UpBlock2D");
  }
  json result = {{"_class_name", kUNetClassName},
                 {"_diffusers_version", kDiffusersVersion},
                 {"act_fn", "silu"},
                 {"attention_head_dim", levels_to_json(levels, &UNetLevel::num_heads)},
                 {"block_out_channels", channels},
                 {"center_input_sample", center_input_sample},
                 {"cross_attention_dim", levels_to_json(levels, &UNetLevel::states_width)},
                 {"down_block_types", down_types},
                 {"downsample_padding", downsample_padding},
                 {"dual_cross_attention", false},
                 {"flip_sin_to_cos", flip_sin_to_cos},
                 {"freq_shift", freq_shift},
                 {"in_channels", in_channels},
                 {"layers_per_block", levels_to_json(levels, &UNetLevel::num_resnets)},
                 {"mid_block_scale_factor", 1},
                 {"mid_block_type", "UNetMidBlock2DCrossAttn"},
                 {"norm_eps", norm_eps},
                 {"norm_num_groups", norm_num_groups},
                 {"only_cross_attention", false},
                 {"out_channels", out_channels},
                 {"sample_size", sample_size},
                 {"transformer_layers_per_block", levels_to_json(levels, &UNetLevel::num_transformer_layers)},
                 {"up_block_types", up_types},
                 {"upcast_attention", upcast_attention},
                 {"use_linear_projection", use_linear_projection}};
  if (added_embedding) {
    result["addition_embed_type"] = "text_time";
    result["addition_time_embed_dim"] = added_embedding->time_channels;
    result["projection_class_embeddings_input_dim"] = added_embedding->input_width;
  }
  return result;
}

}  // namespace darkroom
