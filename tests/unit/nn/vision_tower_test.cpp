#include "darkroom/nn/vision_tower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "darkroom/core/check.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tensor/safetensors.h"
#include "support/error_bound.h"
#include "support/network_golden.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

NetworkGolden clip_golden(const std::string& name) {
  return NetworkGolden::open(source_path("tests/golden/nn/" + name + ".safetensors")).value();
}

nlohmann::json clip_config(const NetworkGolden& golden) {
  nlohmann::json config = golden.config;
  config["architectures"] = {"CLIPModel"};
  config["model_type"] = "clip";
  return config;
}

// A folder as transformers writes it, with the weights that the golden values were made with.
void write_clip(const std::string& folder, const NetworkGolden& golden, const std::string& without = {}) {
  std::ofstream(folder + "/config.json") << clip_config(golden);
  ClipTextModel text = [&] {
    nlohmann::json config = golden.config["text_config"];
    config["architectures"] = {"CLIPTextModelWithProjection"};
    config["projection_dim"] = golden.config["projection_dim"];
    return ClipTextModel(ClipTextConfig::from_json(config).value());
  }();
  nlohmann::json vision_config = golden.config["vision_config"];
  vision_config["projection_dim"] = golden.config["projection_dim"];
  ClipVisionModel vision(ClipVisionConfig::from_json(vision_config).value());
  std::vector<NamedTensor> tensors = {{"logit_scale", torch::ones({})}};
  for (torch::nn::Module* tower : std::initializer_list<torch::nn::Module*>{text.ptr().get(), vision.ptr().get()}) {
    fill_parameters(*tower);
    for (const auto& item : tower->named_parameters()) {
      if (item.key() != without) {
        tensors.push_back({item.key(), item.value().detach()});
      }
    }
  }
  ASSERT_TRUE(write_safetensors_atomic(local_files(), folder + "/model.safetensors", tensors).is_ok());
}

class ClipGolden : public testing::TestWithParam<const char*> {};

TEST_P(ClipGolden, embeddings_of_pictures_and_texts_equal_transformers) {
  const NetworkGolden golden = clip_golden(GetParam());
  const TemporaryFolder folder;
  write_clip(folder.path(), golden);
  auto towers = load_clip(folder.path());
  ASSERT_TRUE(towers.is_ok()) << towers.status().to_string();
  const torch::NoGradGuard no_grad;
  const auto images = towers->vision(golden.tensor("pixel_values"));
  const auto texts = towers->text->encode(golden.tensor("input_ids")).text_embeds_np;
  for (const auto& [got, name] : {std::pair(images, "image_embeds"), std::pair(texts, "text_embeds")}) {
    const auto want = golden.tensor(name);
    ASSERT_EQ(got.sizes(), want.sizes());
    // A few sums each layer of at most 108 products (a patch's) of values about as large as the embeddings.
    EXPECT_TRUE(is_near(got, want, accumulation_tolerance<float>(108, largest(want)))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, ClipGolden, testing::Values("clip_quick_gelu", "clip_gelu"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ClipVision, has_the_parameters_that_transformers_names) {
  const NetworkGolden golden = clip_golden("clip_gelu");
  ClipVisionModel vision(ClipVisionConfig::from_json(golden.config["vision_config"]).value());
  std::vector<std::string> want, got;
  for (const auto& name : nlohmann::json::parse(golden.file->metadata().at("names"))) {
    const std::string text = name;
    if (text.starts_with("vis") && !text.ends_with("position_ids")) {
      want.push_back(text);
    }
  }
  for (const auto& item : vision->named_parameters()) {
    got.push_back(item.key());
  }
  EXPECT_THAT(got, testing::UnorderedElementsAreArray(want));
}

TEST(ClipVision, refuses_pictures_of_another_size) {
  ClipVisionModel vision(ClipVisionConfig::from_json(clip_golden("clip_gelu").config["vision_config"]).value());
  EXPECT_THROW(vision(torch::zeros({1, 3, 12, 18})), CheckFailure);
}

TEST(ClipVision, refuses_configs_that_it_cannot_compute) {
  const auto refused = [](const nlohmann::json& config, const std::string& words) {
    const auto result = ClipVisionConfig::from_json(config);
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(result.status().message(), HasSubstr(words));
  };
  refused({{"hidden_act", "relu"}}, "relu");
  refused({{"num_attention_heads", 5}}, "num_attention_heads");
  refused({{"image_size", 225}}, "patch_size");
  refused({{"num_channels", 1}}, "num_channels");
  refused({{"model_type", "siglip"}}, "siglip");
}

TEST(ClipFolder, errors_name_what_is_wrong) {
  const NetworkGolden golden = clip_golden("clip_gelu");
  const TemporaryFolder folder;
  EXPECT_EQ(load_clip(folder.path()).status().code(), StatusCode::kNotFound);
  std::ofstream(folder.path() + "/config.json") << R"({"architectures": ["SiglipModel"]})";
  EXPECT_THAT(load_clip(folder.path()).status().message(), HasSubstr("SiglipModel"));
  std::ofstream(folder.path() + "/config.json") << R"({"architectures": ["CLIPModel"], "text_config": 3})";
  EXPECT_EQ(load_clip(folder.path()).status().code(), StatusCode::kFailedPrecondition);
  write_clip(folder.path(), golden, "vision_model.post_layernorm.bias");
  const auto towers = load_clip(folder.path());
  ASSERT_FALSE(towers.is_ok());
  EXPECT_THAT(towers.status().message(), HasSubstr("vision_model.post_layernorm.bias"));
}

// Built to such a config a tower would take more memory than there is, or hours.
TEST(ClipFolder, configs_of_larger_towers_than_are_stored_are_refused_before_they_are_built) {
  const NetworkGolden golden = clip_golden("clip_gelu");
  const TemporaryFolder folder;
  write_clip(folder.path(), golden);
  const auto refuse = [&](const char* tower, const nlohmann::json& changes) {
    nlohmann::json config = clip_config(golden);
    (tower == nullptr ? config : config[tower]).update(changes);
    std::ofstream(folder.path() + "/config.json") << config;
    const Status status = load_clip(folder.path()).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << changes;
    EXPECT_THAT(status.message(), HasSubstr("larger network")) << changes;
  };
  constexpr int64_t kHuge = int64_t{1} << 24;
  for (const char* tower : {"text_config", "vision_config"}) {
    for (const char* field : {"num_hidden_layers", "hidden_size", "intermediate_size"}) {
      refuse(tower, {{field, kHuge}});
    }
  }
  refuse("text_config", {{"vocab_size", kHuge}});
  refuse("vision_config", {{"image_size", kHuge}, {"patch_size", 1}});
  refuse("vision_config", {{"image_size", kHuge}, {"patch_size", kHuge}});
  refuse(nullptr, {{"projection_dim", kHuge}});
}

}  // namespace
}  // namespace darkroom
