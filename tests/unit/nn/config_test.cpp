#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <set>

#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"

namespace darkroom {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

template <typename Config>
void expect_refused(json config, const std::string& field, const json& value) {
  config[field] = value;
  const auto result = Config::from_json(config);
  ASSERT_FALSE(result.is_ok()) << field << " " << value;
  EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(result.status().message(), AllOf(HasSubstr(field), HasSubstr(value.dump())));
}

constexpr int64_t kQuickstartParameters = 222'984'164;

json preset_json(const std::string& name, const std::string& part) {
  const auto preset = find_preset(name).value();
  return part == "unet" ? preset.unet.to_json() : part == "vae" ? preset.vae.to_json() : preset.text_encoder.to_json();
}

TEST(PresetTest, counts_the_published_parameters) {
  // Parameters are virtual memory until they are filled, so even the large networks cost nothing here.
  const auto sd2 = find_preset("sd2-base").value();
  EXPECT_EQ(count_parameters(*UNet2DConditionModel(sd2.unet)), 865'910'724);
  EXPECT_EQ(count_parameters(*AutoencoderKL(sd2.vae)), 83'653'863);
  EXPECT_EQ(count_parameters(*ClipTextModel(sd2.text_encoder)), 340'387'840);
  EXPECT_EQ(count_parameters(*UNet2DConditionModel(find_preset("sd2-768").value().unet)), 865'910'724);
  const auto sd1 = find_preset("sd1").value();
  EXPECT_EQ(count_parameters(*UNet2DConditionModel(sd1.unet)), 859'520'964);
  EXPECT_EQ(count_parameters(*AutoencoderKL(sd1.vae)), 83'653'863);
  EXPECT_EQ(count_parameters(*ClipTextModel(sd1.text_encoder)), 123'060'480);
  // Counted by diffusers 0.42.1 from the quickstart's small_unet_model_config.
  EXPECT_EQ(count_parameters(*UNet2DConditionModel(find_preset("quickstart").value().unet)), kQuickstartParameters);
}

// The config.json files as published, with the fields that the presets leave to defaults.
TEST(PresetTest, published_configs_are_the_presets) {
  const json sd2_unet = json::parse(R"({
    "_class_name": "UNet2DConditionModel", "_diffusers_version": "0.10.0.dev0", "act_fn": "silu",
    "attention_head_dim": [5, 10, 20, 20], "block_out_channels": [320, 640, 1280, 1280], "center_input_sample": false,
    "cross_attention_dim": 1024,
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
    "downsample_padding": 1, "dual_cross_attention": false, "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 4,
    "layers_per_block": 2, "mid_block_scale_factor": 1, "norm_eps": 1e-05, "norm_num_groups": 32, "num_class_embeds": null,
    "only_cross_attention": false, "out_channels": 4, "sample_size": 64,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
    "use_linear_projection": true})");
  EXPECT_EQ(UNetConfig::from_json(sd2_unet).value(), find_preset("sd2-base").value().unet);
  json sd2_768 = sd2_unet;
  sd2_768.update({{"sample_size", 96}, {"upcast_attention", true}});
  EXPECT_EQ(UNetConfig::from_json(sd2_768).value(), find_preset("sd2-768").value().unet);
  json sd1_unet = sd2_unet;
  sd1_unet.update({{"attention_head_dim", 8}, {"cross_attention_dim", 768}});
  sd1_unet.erase("use_linear_projection");
  EXPECT_EQ(UNetConfig::from_json(sd1_unet).value(), find_preset("sd1").value().unet);
  const json sd1_text = json::parse(R"({
    "architectures": ["CLIPTextModel"], "attention_dropout": 0.0, "bos_token_id": 0, "dropout": 0.0, "eos_token_id": 2,
    "hidden_act": "quick_gelu", "hidden_size": 768, "initializer_factor": 1.0, "initializer_range": 0.02,
    "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1, "projection_dim": 768, "torch_dtype": "float32",
    "transformers_version": "4.22.0.dev0", "vocab_size": 49408})");
  EXPECT_EQ(ClipTextConfig::from_json(sd1_text).value(), find_preset("sd1").value().text_encoder);
}

TEST(SdxlTest, counts_the_published_parameters) {
  const json unet = json::parse(R"({
    "_class_name": "UNet2DConditionModel", "addition_embed_type": "text_time", "addition_embed_type_num_heads": 64,
    "addition_time_embed_dim": 256, "attention_head_dim": [5, 10, 20], "block_out_channels": [320, 640, 1280],
    "cross_attention_dim": 2048, "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "num_attention_heads": null, "projection_class_embeddings_input_dim": 2816, "sample_size": 128,
    "transformer_layers_per_block": [1, 2, 10], "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "upcast_attention": null, "use_linear_projection": true})");
  EXPECT_EQ(count_parameters(*UNet2DConditionModel(UNetConfig::from_json(unet).value())), 2'567'463'684);
  const json second_text = {{"architectures", {"CLIPTextModelWithProjection"}},
                            {"eos_token_id", 2},
                            {"hidden_act", "gelu"},
                            {"hidden_size", 1280},
                            {"intermediate_size", 5120},
                            {"num_attention_heads", 20},
                            {"num_hidden_layers", 32},
                            {"projection_dim", 1280}};
  EXPECT_EQ(count_parameters(*ClipTextModel(ClipTextConfig::from_json(second_text).value())), 694'659'840);
}

TEST(SdxlTest, configs_survive_the_round_trip) {
  json unet = preset_json("tiny", "unet");
  unet.update({{"addition_embed_type", "text_time"}, {"addition_time_embed_dim", 8}, {"projection_class_embeddings_input_dim", 96}});
  const auto config = UNetConfig::from_json(unet).value();
  EXPECT_EQ(config.added_embedding, (UNetAddedEmbedding{.time_channels = 8, .input_width = 96}));
  EXPECT_EQ(UNetConfig::from_json(config.to_json()).value(), config);
  json text = preset_json("tiny", "text_encoder");
  text["architectures"] = {"CLIPTextModelWithProjection"};
  EXPECT_TRUE(ClipTextConfig::from_json(text).value().with_projection);
  EXPECT_EQ(ClipTextConfig::from_json(text).value().to_json()["architectures"], text["architectures"]);
}

TEST(PresetTest, tiny_is_small_and_its_parts_fit) {
  const auto tiny = find_preset("tiny").value();
  EXPECT_NEAR(static_cast<double>(count_parameters(*UNet2DConditionModel(tiny.unet))), 2.8e6, 0.2e6);
  EXPECT_NEAR(static_cast<double>(count_parameters(*AutoencoderKL(tiny.vae))), 2.7e6, 0.3e6);
  EXPECT_EQ(tiny.unet.states_width(), tiny.text_encoder.hidden_size);
  EXPECT_EQ(tiny.unet.in_channels, tiny.vae.latent_channels);
  EXPECT_EQ(tiny.vae.sample_size / tiny.vae.factor(), tiny.unet.sample_size);
}

TEST(PresetTest, names_the_presets_for_an_unknown_one) {
  const auto result = find_preset("huge");
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(result.status().message(), AllOf(HasSubstr("tiny"), HasSubstr("sd2-768"), HasSubstr("huge")));
}

TEST(PresetTest, configs_survive_the_round_trip) {
  for (const auto& name : preset_names()) {
    const auto preset = find_preset(name).value();
    EXPECT_EQ(UNetConfig::from_json(preset.unet.to_json()).value(), preset.unet) << name;
    EXPECT_EQ(VaeConfig::from_json(preset.vae.to_json()).value(), preset.vae) << name;
    EXPECT_EQ(ClipTextConfig::from_json(preset.text_encoder.to_json()).value(), preset.text_encoder) << name;
  }
}

TEST(UNetConfigTest, an_empty_config_takes_the_defaults_of_diffusers) {
  const auto config = UNetConfig::from_json(json::object()).value();
  // Stable Diffusion 1's count with 768 wide states, plus the wider keys and values of its 16 cross attentions.
  EXPECT_EQ(count_parameters(*UNet2DConditionModel(config)), 859'520'964 + (1280 - 768) * 2 * (5 * 320 + 5 * 640 + 6 * 1280));
  EXPECT_FALSE(config.levels.back().down_attention);
  EXPECT_EQ(config.levels.front().num_heads, 8);
}

TEST(UNetConfigTest, accepts_null_and_default_fields_of_newer_and_older_versions) {
  json config = preset_json("sd2-base", "unet");
  config["some_future_field"] = nullptr;
  config["another_future_field"] = false;
  config["_name_or_path"] = "somewhere";
  config["class_embed_type"] = nullptr;
  config["dropout"] = 0.0;
  config["addition_embed_type_num_heads"] = 64;
  config["only_cross_attention"] = {false, false, false, false};
  EXPECT_EQ(UNetConfig::from_json(config).value(), find_preset("sd2-base").value().unet);
}

TEST(UNetConfigTest, refuses_what_it_cannot_compute_naming_field_and_value) {
  const json config = preset_json("tiny", "unet");
  expect_refused<UNetConfig>(config, "_class_name", "AutoencoderKL");
  expect_refused<UNetConfig>(config, "only_cross_attention", true);
  expect_refused<UNetConfig>(config, "only_cross_attention", json{false, true});
  expect_refused<UNetConfig>(config, "num_attention_heads", 8);
  expect_refused<UNetConfig>(config, "dual_cross_attention", true);
  expect_refused<UNetConfig>(config, "class_embed_type", "projection");
  expect_refused<UNetConfig>(config, "addition_embed_type", "text_image");
  expect_refused<UNetConfig>(config, "addition_time_embed_dim", 256);
  expect_refused<UNetConfig>(config, "mid_block_type", "UNetMidBlock2D");
  expect_refused<UNetConfig>(config, "resnet_time_scale_shift", "scale_shift");
  expect_refused<UNetConfig>(config, "act_fn", "gelu");
  expect_refused<UNetConfig>(config, "conv_in_kernel", 5);
  expect_refused<UNetConfig>(config, "dropout", 0.1);
  expect_refused<UNetConfig>(config, "mid_block_scale_factor", 2);
  expect_refused<UNetConfig>(config, "some_future_field", 3);
  expect_refused<UNetConfig>(config, "down_block_types", json{"CrossAttnDownBlock2D", "AttnDownBlock2D"});
  expect_refused<UNetConfig>(config, "down_block_types", json{"DownBlock2D"});
  expect_refused<UNetConfig>(config, "up_block_types", json{"UpBlock2D", "UpBlock2D", "UpBlock2D"});
}

TEST(UNetConfigTest, refuses_numbers_that_make_no_network) {
  const json config = preset_json("tiny", "unet");
  expect_refused<UNetConfig>(config, "block_out_channels", json::array());
  expect_refused<UNetConfig>(config, "block_out_channels", json{64, -1});
  expect_refused<UNetConfig>(config, "in_channels", 0);
  expect_refused<UNetConfig>(config, "in_channels", "four");
  expect_refused<UNetConfig>(config, "in_channels", 4.5);
  expect_refused<UNetConfig>(config, "norm_num_groups", 48);
  expect_refused<UNetConfig>(config, "norm_eps", "small");
  expect_refused<UNetConfig>(config, "attention_head_dim", json{2, 5});
  expect_refused<UNetConfig>(config, "attention_head_dim", json{2, 3, 4});
  expect_refused<UNetConfig>(config, "cross_attention_dim", json{128, 64});
  expect_refused<UNetConfig>(config, "flip_sin_to_cos", 1);
  expect_refused<UNetConfig>(config, "block_out_channels", json{1 << 30, 1 << 30});
  EXPECT_FALSE(UNetConfig::from_json(json::array()).is_ok());
}

TEST(VaeConfigTest, refuses_what_it_cannot_compute_naming_field_and_value) {
  const json config = preset_json("tiny", "vae");
  expect_refused<VaeConfig>(config, "_class_name", "UNet2DConditionModel");
  expect_refused<VaeConfig>(config, "shift_factor", 0.1);
  expect_refused<VaeConfig>(config, "in_channels", 1);
  expect_refused<VaeConfig>(config, "out_channels", 4);
  expect_refused<VaeConfig>(config, "block_out_channels", std::vector<int>(64, 32));
  expect_refused<VaeConfig>(config, "latents_mean", json{0.1});
  expect_refused<VaeConfig>(config, "scaling_factor", 0);
  expect_refused<VaeConfig>(config, "down_block_types", json{"DownEncoderBlock2D"});
  expect_refused<VaeConfig>(config, "norm_num_groups", 32);
}

TEST(VaeConfigTest, scaling_factor_is_the_published_one_when_absent) {
  json config = preset_json("sd2-base", "vae");
  config.erase("scaling_factor");
  EXPECT_EQ(VaeConfig::from_json(config).value().scaling_factor, 0.18215);
}

TEST(ClipTextConfigTest, refuses_another_model_and_unknown_activations) {
  const json config = preset_json("tiny", "text_encoder");
  expect_refused<ClipTextConfig>(config, "architectures", json{"CLIPVisionModel"});
  expect_refused<ClipTextConfig>(config, "model_type", "bert");
  expect_refused<ClipTextConfig>(config, "hidden_act", "relu");
  expect_refused<ClipTextConfig>(config, "num_attention_heads", 3);
}

TEST(ClipTextConfigTest, accepts_the_settings_that_old_versions_dumped) {
  json config = preset_json("sd2-base", "text_encoder");
  config["torch_dtype"] = "float16";
  config["dropout"] = 0.0;
  config["num_beams"] = 1;
  config["eos_token_id"] = {49407, 2};
  EXPECT_TRUE(ClipTextConfig::from_json(config).is_ok());
}

}  // namespace
}  // namespace darkroom
