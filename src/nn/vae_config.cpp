#include "config_reader.h"
#include "darkroom/nn/vae.h"
#include "diffusers_version.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr const char* kVaeClassName = "AutoencoderKL";
constexpr const char* kDownType = "DownEncoderBlock2D";
constexpr const char* kUpType = "UpDecoderBlock2D";

void check_block_types(ConfigReader& reader, const char* key, const char* supported, size_t count) {
  std::vector<std::string> types{supported};
  reader.read(key, types);
  if (types.size() != count) {
    reader.refuse(key, "want one block a number of block_out_channels");
  }
  for (const auto& type : types) {
    if (type != supported) {
      reader.refuse(key, "block type '" + type + "' is not supported; supported: " + supported);
    }
  }
}

void check_widths(ConfigReader& reader, const VaeConfig& config) {
  for (const int64_t channels : config.block_out_channels) {
    if (channels % config.norm_num_groups != 0) {
      reader.refuse("norm_num_groups", "every number of block_out_channels must be a multiple of it");
    }
  }
  if (config.scaling_factor <= 0) {
    reader.refuse("scaling_factor", "want a number above 0");
  }
}

}  // namespace

Result<VaeConfig> VaeConfig::from_json(const json& config) {
  ConfigReader reader(config, kVaeClassName);
  reader.require_class("_class_name");
  VaeConfig result;
  reader.read_size("sample_size", result.sample_size);
  reader.read("in_channels", result.in_channels, 1);
  reader.read("out_channels", result.out_channels, 1);
  reader.read("latent_channels", result.latent_channels, 1);
  reader.read("block_out_channels", result.block_out_channels, 1);
  reader.read("layers_per_block", result.layers_per_block, 1);
  reader.read("norm_num_groups", result.norm_num_groups, 1);
  reader.read("scaling_factor", result.scaling_factor);
  reader.read("force_upcast", result.force_upcast);
  reader.read("use_quant_conv", result.use_quant_conv);
  reader.read("use_post_quant_conv", result.use_post_quant_conv);
  reader.read("mid_block_add_attention", result.mid_block_add_attention);
  for (const char* key : {"in_channels", "out_channels"}) {
    reader.only(key, {3});  // Pictures are RGB, wherever networks take them or make them.
  }
  reader.only("act_fn", {"silu", "swish"});
  for (const char* key : {"shift_factor", "latents_mean", "latents_std"}) {
    reader.only(key, {});
  }
  DARKROOM_RETURN_IF_ERROR(reader.status());
  check_block_types(reader, "down_block_types", kDownType, result.block_out_channels.size());
  check_block_types(reader, "up_block_types", kUpType, result.block_out_channels.size());
  reader.refuse_unknown();
  check_widths(reader, result);
  DARKROOM_RETURN_IF_ERROR(reader.status());
  return result;
}

json VaeConfig::to_json() const {
  const size_t num_levels = block_out_channels.size();
  return {{"_class_name", kVaeClassName},
          {"_diffusers_version", kDiffusersVersion},
          {"act_fn", "silu"},
          {"block_out_channels", block_out_channels},
          {"down_block_types", std::vector<std::string>(num_levels, kDownType)},
          {"force_upcast", force_upcast},
          {"in_channels", in_channels},
          {"latent_channels", latent_channels},
          {"layers_per_block", layers_per_block},
          {"mid_block_add_attention", mid_block_add_attention},
          {"norm_num_groups", norm_num_groups},
          {"out_channels", out_channels},
          {"sample_size", sample_size},
          {"scaling_factor", scaling_factor},
          {"up_block_types", std::vector<std::string>(num_levels, kUpType)},
          {"use_post_quant_conv", use_post_quant_conv},
          {"use_quant_conv", use_quant_conv}};
}

}  // namespace darkroom
