#include "darkroom/nn/presets.h"

#include <map>

namespace darkroom {
namespace {

using nlohmann::json;

// The published configs (Stable Diffusion 1.5 and 2.1), the small U-Net of the pre-training quickstart, and the tiny one that the
// repository trains and ships.
constexpr const char* kScheduler = R"({
  "_class_name": "PNDMScheduler", "_diffusers_version": "0.42.1", "beta_end": 0.012, "beta_schedule": "scaled_linear",
  "beta_start": 0.00085, "clip_sample": false, "num_train_timesteps": 1000, "prediction_type": "epsilon",
  "set_alpha_to_one": false, "skip_prk_steps": true, "steps_offset": 1, "trained_betas": null})";

constexpr const char* kTinyUNet = R"({
  "sample_size": 8, "in_channels": 4, "out_channels": 4, "block_out_channels": [64, 96], "layers_per_block": 1,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
  "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
  "attention_head_dim": [2, 3], "cross_attention_dim": 128, "use_linear_projection": true, "norm_num_groups": 16})";

constexpr const char* kTinyVae = R"({
  "sample_size": 64, "block_out_channels": [16, 32, 64, 128], "layers_per_block": 1, "norm_num_groups": 8,
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})";

constexpr const char* kTinyText = R"({
  "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "gelu",
  "projection_dim": 128, "bos_token_id": 49406, "eos_token_id": 49407, "pad_token_id": 0})";

constexpr const char* kSd2UNet = R"({
  "sample_size": 64, "in_channels": 4, "out_channels": 4, "block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
  "attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024, "use_linear_projection": true})";

constexpr const char* kSd2Vae = R"({
  "sample_size": 768, "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2,
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})";

constexpr const char* kSd2Text = R"({
  "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16, "hidden_act": "gelu",
  "projection_dim": 512, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1})";

// Stable Diffusion 1.x: convolutions around its transformers, 8 heads everywhere, OpenAI's CLIP.
constexpr const char* kSd1UNet = R"({
  "sample_size": 64, "in_channels": 4, "out_channels": 4, "block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
  "attention_head_dim": 8, "cross_attention_dim": 768})";

constexpr const char* kSd1Text = R"({
  "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "quick_gelu",
  "projection_dim": 768, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1})";

struct PresetText {
  const char* unet;
  const char* vae;
  const char* text_encoder;
  json unet_changes;
  json vae_changes;
  json scheduler_changes;
};

const std::map<std::string, PresetText>& presets() {
  static const std::map<std::string, PresetText> table = {
      // v: with noise as the target little of the loss asks which picture it is, and minutes of training would not suffice.
      {"tiny", {kTinyUNet, kTinyVae, kTinyText, {}, {}, {{"prediction_type", "v_prediction"}}}},
      {"quickstart", {kSd1UNet, kSd2Vae, kSd2Text, {{"block_out_channels", {160, 320, 640, 640}}, {"cross_attention_dim", 1024}}, {}, {}}},
      {"sd1", {kSd1UNet, kSd2Vae, kSd1Text, {}, {{"sample_size", 512}}, {}}},
      {"sd2-base", {kSd2UNet, kSd2Vae, kSd2Text, {}, {}, {}}},
      {"sd2-768",
       {kSd2UNet,
        kSd2Vae,
        kSd2Text,
        {{"sample_size", 96}, {"upcast_attention", true}},
        {},
        {{"_class_name", "DDIMScheduler"}, {"prediction_type", "v_prediction"}}}},
  };
  return table;
}

json parse_with(const char* text, const json& changes) {
  json result = json::parse(text);
  result.update(changes.is_null() ? json::object() : changes);
  return result;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) {
    names.push_back(name);
  }
  return names;
}

Result<ModelPreset> find_preset(const std::string& name) {
  const auto found = presets().find(name);
  if (found == presets().end()) {
    return Status::invalid_argument("unknown preset; there are " + json(preset_names()).dump() + " (got):", name);
  }
  const PresetText& text = found->second;
  ModelPreset preset{.name = name, .unet = {}, .vae = {}, .text_encoder = {}, .scheduler = parse_with(kScheduler, text.scheduler_changes)};
  DARKROOM_ASSIGN_OR_RETURN(preset.unet, UNetConfig::from_json(parse_with(text.unet, text.unet_changes)));
  DARKROOM_ASSIGN_OR_RETURN(preset.vae, VaeConfig::from_json(parse_with(text.vae, text.vae_changes)));
  DARKROOM_ASSIGN_OR_RETURN(preset.text_encoder, ClipTextConfig::from_json(json::parse(text.text_encoder)));
  return preset;
}

}  // namespace darkroom
