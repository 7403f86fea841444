#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "darkroom/files/file_system.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/tensor/safetensors.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

using Change = std::function<void(std::vector<NamedTensor>&)>;

void leave_as_it_is(std::vector<NamedTensor>& /*tensors*/) {}

// original_names.json lists, as diffusers' converters read them, the stored tensors of both versions and the parameters whose rows
// each holds (tools/goldens/make_nn_goldens.py).
class OriginalCheckpointTest : public testing::TestWithParam<const char*> {
 protected:
  OriginalCheckpointTest() : names_(read_names()[GetParam()]) {
    initialize_parameters(unet_, 1);
    initialize_parameters(vae_, 1);
    initialize_parameters(text_encoder_, 1);
  }

  static json read_names() { return json::parse(read_file(local_files(), source_path("tests/golden/nn/original_names.json")).value()); }

  void add_part(std::vector<NamedTensor>& tensors, const char* part, const torch::nn::Module& module) const {
    const auto parameters = module.named_parameters();
    for (const auto& [stored, names] : names_[part]["tensors"].items()) {
      std::vector<torch::Tensor> rows;
      for (const auto& name : names) {
        rows.push_back(parameters[name.get<std::string>()].detach());
      }
      tensors.push_back({names_[part]["prefix"].get<std::string>() + stored, at::cat(rows)});
    }
    for (const auto& stored : names_[part]["as_1x1_convolution"]) {
      auto& tensor = find(tensors, stored).tensor;
      tensor = tensor.unsqueeze(-1).unsqueeze(-1);
    }
  }

  static NamedTensor& find(std::vector<NamedTensor>& tensors, const std::string& name) {
    return *std::ranges::find_if(tensors, [&](const NamedTensor& named) { return named.name == name; });
  }

  // A file with all parts and all that published files hold besides, after `change`.
  std::string write_file(const Change& change = leave_as_it_is) {
    std::vector<NamedTensor> tensors;
    add_part(tensors, "unet", *unet_);
    add_part(tensors, "vae", *vae_);
    add_part(tensors, "text_encoder", *text_encoder_);
    for (const auto& [name, shape] : names_["unused"].items()) {
      tensors.push_back({name, torch::ones(shape.get<std::vector<int64_t>>())});
    }
    change(tensors);
    std::string path = folder_.path("model.safetensors");
    std::filesystem::remove(path);
    EXPECT_TRUE(write_safetensors(local_files(), path, tensors).is_ok());
    return path;
  }

  static Change without(const std::string& name) {
    return [name](auto& tensors) { std::erase_if(tensors, [&](const NamedTensor& named) { return named.name == name; }); };
  }

  json names_;
  TemporaryFolder folder_;
  UNet2DConditionModel unet_{UNetConfig::from_json(names_["unet"]["config"]).value()};
  AutoencoderKL vae_{VaeConfig::from_json(names_["vae"]["config"]).value()};
  ClipTextModel text_encoder_{ClipTextConfig::from_json(names_["text_encoder"]["config"]).value()};
};

TEST_P(OriginalCheckpointTest, every_part_comes_back_bit_exact_with_the_published_config) {
  const std::string path = write_file();
  const auto model = open_model_folder(path).value();
  EXPECT_TRUE(model.has_unet && model.has_vae && model.has_text_encoder);
  EXPECT_EQ(load_unet(model.unet_folder()).value()->config(), unet_->config());
  EXPECT_EQ(component_fingerprint(load_unet(model.unet_folder()).value()), component_fingerprint(unet_));
  EXPECT_EQ(load_vae(model.vae_folder()).value()->config(), vae_->config());
  EXPECT_EQ(component_fingerprint(load_vae(model.vae_folder()).value()), component_fingerprint(vae_));
  EXPECT_EQ(load_text_encoder(model.text_encoder_folder()).value()->config(), text_encoder_->config());
  EXPECT_EQ(component_fingerprint(load_text_encoder(model.text_encoder_folder()).value()), component_fingerprint(text_encoder_));
}

TEST_P(OriginalCheckpointTest, reads_float16) {
  const std::string path = write_file([](auto& tensors) {
    for (auto& named : tensors) {
      named.tensor = named.tensor.to(torch::kFloat16);
    }
  });
  const auto loaded = load_text_encoder(path + "/text_encoder").value();
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), text_encoder_->named_parameters()[item.key()].to(torch::kFloat16).to(torch::kFloat32)));
  }
}

TEST_P(OriginalCheckpointTest, a_file_of_one_part_has_no_other) {
  const std::string path = write_file([](auto& tensors) {
    std::erase_if(tensors, [](const NamedTensor& named) { return !named.name.starts_with("first_stage_model."); });
  });
  const auto model = open_model_folder(path).value();
  EXPECT_TRUE(model.has_vae);
  EXPECT_FALSE(model.has_unet || model.has_text_encoder);
  EXPECT_TRUE(load_vae(model.vae_folder()).is_ok());
  for (const Status& status : {load_unet(model.unet_folder()).status(), load_text_encoder(model.text_encoder_folder()).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("model.safetensors"));
  }
}

TEST_P(OriginalCheckpointTest, names_a_missing_a_surplus_and_a_misshaped_tensor) {
  const auto failure = [&](const Change& change) {
    const auto status = load_unet(write_file(change) + "/unet").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return status.message();
  };
  const std::string bias = "model.diffusion_model.input_blocks.1.0.out_layers.3.bias";
  EXPECT_THAT(failure(without(bias)), AllOf(HasSubstr("missing"), HasSubstr(bias), HasSubstr("down_blocks.0.resnets.0.conv2.bias")));
  EXPECT_THAT(failure([&](auto& tensors) { find(tensors, bias).tensor = torch::ones({3}); }), AllOf(HasSubstr("shape"), HasSubstr("[3]")));
  EXPECT_THAT(failure([](auto& tensors) {
                tensors.push_back({"model.diffusion_model.stranger", torch::ones({2})});
              }),
              AllOf(HasSubstr("surplus"), HasSubstr("stranger")));
  // What tells the architecture.
  const std::string first = "model.diffusion_model.input_blocks.0.0.weight";
  EXPECT_THAT(failure(without(first)), AllOf(HasSubstr("architecture"), HasSubstr(first)));
  EXPECT_THAT(failure([&](auto& tensors) { find(tensors, first).tensor = torch::ones({3}); }), HasSubstr("dimensions"));
}

// Built to such shapes a network would take more memory than there is.
TEST_P(OriginalCheckpointTest, shapes_of_a_larger_network_than_is_stored_are_refused_before_it_is_built) {
  constexpr int64_t kHuge = int64_t{1} << 24;
  const auto expect_refused = [&](const std::string& name, std::vector<int64_t> shape,
                                  const std::function<Status(const std::string&)>& load) {
    const auto failure = [&](const torch::Tensor& values) {
      const Status status = load(write_file([&](auto& tensors) { find(tensors, name).tensor = values; }));
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << name;
      return status.message();
    };
    EXPECT_THAT(failure(torch::ones(shape, torch::kInt8)), AllOf(HasSubstr("larger network"), HasSubstr("model.safetensors")));
    shape.insert(shape.end(), {0, 0});  // And then not even those bytes.
    EXPECT_THAT(failure(torch::ones(shape)), AllOf(HasSubstr("empty"), HasSubstr(name)));
  };
  expect_refused("model.diffusion_model.input_blocks.0.0.weight", {1, kHuge},
                 [](const std::string& path) { return load_unet(path + "/unet").status(); });
  expect_refused("first_stage_model.decoder.conv_in.weight", {1, kHuge},
                 [](const std::string& path) { return load_vae(path + "/vae").status(); });
  expect_refused(std::string(GetParam()) == "sd1" ? "cond_stage_model.transformer.text_model.embeddings.position_embedding.weight"
                                                  : "cond_stage_model.model.positional_embedding",
                 {kHuge, 1}, [](const std::string& path) { return load_text_encoder(path + "/text_encoder").status(); });
}

TEST_P(OriginalCheckpointTest, what_is_written_has_the_published_names_and_comes_back_bit_exact) {
  const std::string path = folder_.path("written.safetensors");
  const Status status = save_single_file(local_files(), unet_, vae_, text_encoder_, path);
  ASSERT_TRUE(status.is_ok()) << status.message();
  const auto published = SafetensorsFile::open(write_file()).value();
  const auto written = SafetensorsFile::open(path).value();
  const std::string unused_layer =
      fmt::format("cond_stage_model.model.transformer.resblocks.{}.", text_encoder_->config().num_hidden_layers);
  for (const auto& name : written->names()) {
    if (name.starts_with(unused_layer)) {
      continue;
    }
    ASSERT_TRUE(published->spec(name).is_ok()) << name;
    EXPECT_EQ(written->spec(name)->shape, published->spec(name)->shape) << name;
  }
  EXPECT_EQ(component_fingerprint(load_unet(path + "/unet").value()), component_fingerprint(unet_));
  EXPECT_EQ(component_fingerprint(load_vae(path + "/vae").value()), component_fingerprint(vae_));
  EXPECT_EQ(component_fingerprint(load_text_encoder(path + "/text_encoder").value()), component_fingerprint(text_encoder_));
}

TEST_P(OriginalCheckpointTest, writes_float16) {
  const std::string path = folder_.path("half.safetensors");
  ASSERT_TRUE(save_single_file(local_files(), unet_, vae_, text_encoder_, path, WeightsDtype::kFloat16).is_ok());
  const auto loaded = load_vae(path + "/vae").value();
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), vae_->named_parameters()[item.key()].to(torch::kFloat16).to(torch::kFloat32)));
  }
}

TEST_P(OriginalCheckpointTest, refuses_to_write_what_a_file_without_configs_cannot_tell) {
  VaeConfig config = vae_->config();
  config.scaling_factor = 0.5;
  AutoencoderKL other(config);
  initialize_parameters(other, 1);
  const std::string path = folder_.path("other.safetensors");
  const Status status = save_single_file(local_files(), unet_, other, text_encoder_, path);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("vae"), HasSubstr("scaling_factor"), HasSubstr("export a folder")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_P(OriginalCheckpointTest, writes_networks_whose_upcast_flags_are_the_others) {
  UNetConfig unet = unet_->config();
  unet.upcast_attention = !unet.upcast_attention;
  UNet2DConditionModel other_unet(unet);
  initialize_parameters(other_unet, 1);
  VaeConfig vae = vae_->config();
  vae.force_upcast = !vae.force_upcast;
  AutoencoderKL other_vae(vae);
  initialize_parameters(other_vae, 1);
  Status status = save_single_file(local_files(), other_unet, vae_, text_encoder_, folder_.path("unet.safetensors"));
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  status = save_single_file(local_files(), unet_, other_vae, text_encoder_, folder_.path("vae.safetensors"));
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST_P(OriginalCheckpointTest, refuses_sdxl_by_its_name) {
  const std::string path = write_file([](auto& tensors) {
    tensors.push_back({"model.diffusion_model.label_emb.0.0.weight", torch::ones({2})});
  });
  EXPECT_THAT(load_unet(path + "/unet").status().message(), HasSubstr("SDXL"));
}

TEST_P(OriginalCheckpointTest, tokenizer_and_schedule_lie_beside_the_file) {
  const std::string path = write_file();
  const bool is_version_1 = std::string(GetParam()) == "sd1";
  // Version 2 exists with epsilon and with v, which no tensor tells.
  EXPECT_EQ(open_model_folder(path).value().scheduler_config.is_null(), !is_version_1);
  EXPECT_FALSE(open_model_folder(path).value().has_tokenizer);
  std::filesystem::create_directories(folder_.path("tokenizer"));
  std::filesystem::create_directories(folder_.path("scheduler"));
  std::ofstream(folder_.path("scheduler/scheduler_config.json")) << R"({"prediction_type": "v_prediction"})";
  const auto model = open_model_folder(path).value();
  EXPECT_TRUE(model.has_tokenizer);
  EXPECT_EQ(model.tokenizer_folder(), folder_.path("tokenizer"));
  EXPECT_EQ(model.scheduler_config["prediction_type"], "v_prediction");
}

INSTANTIATE_TEST_SUITE_P(Versions, OriginalCheckpointTest, testing::Values("sd1", "sd2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SingleFileTest, refuses_a_pickle_with_the_command_that_converts_it) {
  const TemporaryFolder folder;
  for (const std::string& start : {std::string("PK\x03\x04 a zip archive"), std::string("\x80\x02 a bare pickle")}) {
    std::ofstream(folder.path("model.ckpt")) << start;
    const auto status = open_model_folder(folder.path("model.ckpt")).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("model.ckpt"), HasSubstr("state_dict")));
  }
}

TEST(SingleFileTest, a_file_without_any_part_is_no_model) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_safetensors(local_files(), folder.path("lora.safetensors"), {{"lora_unet.weight", torch::ones({2})}}).is_ok());
  EXPECT_EQ(open_model_folder(folder.path("lora.safetensors")).status().code(), StatusCode::kNotFound);
  std::ofstream(folder.path("text.txt")) << "no weights at all";
  EXPECT_EQ(open_model_folder(folder.path("text.txt")).status().code(), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace darkroom
