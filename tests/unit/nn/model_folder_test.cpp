#include "darkroom/nn/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/presets.h"
#include "darkroom/tensor/safetensors.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

UNetConfig small_unet() {
  UNetConfig config;
  config.levels = {{.num_channels = 8, .num_resnets = 1, .num_heads = 2, .states_width = 12},
                   {.num_channels = 16, .num_resnets = 1, .num_heads = 2, .states_width = 12}};
  config.norm_num_groups = 4;
  return config;
}

VaeConfig small_vae() {
  VaeConfig config;
  config.block_out_channels = {8, 16};
  config.norm_num_groups = 4;
  return config;
}

ClipTextConfig small_text() {
  ClipTextConfig config;
  config.vocab_size = 20;
  config.hidden_size = 16;
  config.intermediate_size = 32;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.max_position_embeddings = 9;
  return config;
}

class ModelFolderTest : public testing::Test {
 protected:
  ModelFolderTest() {
    initialize_parameters(unet_, 1);
    initialize_parameters(vae_, 1);
    initialize_parameters(text_encoder_, 1);
  }

  std::vector<NamedTensor> tensors_of(const std::string& path) {
    const auto file = SafetensorsFile::open(path).value();
    std::vector<NamedTensor> tensors;
    for (const auto& name : file->names()) {
      tensors.push_back({name, file->tensor(name).value().clone()});
    }
    return tensors;
  }

  void write_text(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }

  std::string unet_file() const { return folder_.path("unet/diffusion_pytorch_model.safetensors"); }
  std::string vae_file() const { return folder_.path("vae/diffusion_pytorch_model.safetensors"); }
  std::string text_file() const { return folder_.path("text_encoder/model.safetensors"); }

  // Saves the VAE, passes its tensors through `change` and writes them back.
  void rewrite(const std::string& path, const std::function<void(std::vector<NamedTensor>&)>& change) {
    auto tensors = tensors_of(path);
    change(tensors);
    std::filesystem::remove(path);
    ASSERT_TRUE(write_safetensors(local_files(), path, tensors, {{"format", "pt"}}).is_ok());
  }

  TemporaryFolder folder_;
  UNet2DConditionModel unet_{small_unet()};
  AutoencoderKL vae_{small_vae()};
  ClipTextModel text_encoder_{small_text()};
};

TEST_F(ModelFolderTest, every_component_comes_back_bit_exact) {
  ASSERT_TRUE(save_unet(local_files(), unet_, folder_.path("unet")).is_ok());
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  ASSERT_TRUE(save_text_encoder(local_files(), text_encoder_, folder_.path("text_encoder")).is_ok());
  EXPECT_EQ(component_fingerprint(load_unet(folder_.path("unet")).value()), component_fingerprint(unet_));
  EXPECT_EQ(component_fingerprint(load_vae(folder_.path("vae")).value()), component_fingerprint(vae_));
  EXPECT_EQ(component_fingerprint(load_text_encoder(folder_.path("text_encoder")).value()), component_fingerprint(text_encoder_));
  EXPECT_EQ(SafetensorsFile::open(text_file()).value()->metadata().at("format"), "pt");
}

// Built to such a config a network would take more memory than there is, or hours.
TEST_F(ModelFolderTest, a_config_of_a_larger_network_than_is_stored_is_refused_before_it_is_built) {
  ASSERT_TRUE(save_unet(local_files(), unet_, folder_.path("unet")).is_ok());
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  ASSERT_TRUE(save_text_encoder(local_files(), text_encoder_, folder_.path("text_encoder")).is_ok());
  const auto refuse = [&](const std::string& part, const char* field, const json& value, const std::function<Status()>& load) {
    const std::string path = folder_.path(part + "/config.json");
    const std::string before = read_file(local_files(), path).value();
    json config = json::parse(before);
    config[field] = value;
    write_text(path, config.dump());
    const Status status = load();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << part << " " << field;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("larger network"), HasSubstr(folder_.path(part)))) << field;
    write_text(path, before);
    EXPECT_TRUE(load().is_ok()) << part;
  };
  constexpr int64_t kHuge = int64_t{1} << 24;
  const auto text = [&] { return load_text_encoder(folder_.path("text_encoder")).status(); };
  for (const char* field : {"num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    refuse("text_encoder", field, kHuge, text);
  }
  const auto vae = [&] { return load_vae(folder_.path("vae")).status(); };
  refuse("vae", "layers_per_block", kHuge, vae);
  refuse("vae", "block_out_channels", {8, kHuge}, vae);
  refuse("vae", "latent_channels", kHuge, vae);
  const auto unet = [&] { return load_unet(folder_.path("unet")).status(); };
  refuse("unet", "layers_per_block", kHuge, unet);
  refuse("unet", "transformer_layers_per_block", kHuge, unet);
  refuse("unet", "block_out_channels", {kHuge, 16}, unet);
  refuse("unet", "cross_attention_dim", kHuge, unet);
  refuse("unet", "in_channels", kHuge, unet);
}

TEST_F(ModelFolderTest, a_scheduler_whose_names_are_no_texts_is_damaged) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  for (const char* config : {R"({"_class_name": 3})", R"({"prediction_type": ["epsilon"]})"}) {
    write_text(folder_.path("scheduler/scheduler_config.json"), config);
    const Status status = open_model_folder(folder_.path()).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("scheduler_config.json"));
  }
}

TEST_F(ModelFolderTest, a_stop_request_ends_saving_and_fingerprint) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(save_vae(local_files(), vae_, folder_.path("stopped"), WeightsDtype::kFloat32, stop.get_token()).code(),
            StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("stopped/diffusion_pytorch_model.safetensors")));
  EXPECT_EQ(component_fingerprint(vae_, stop.get_token()), "");
}

TEST_F(ModelFolderTest, fingerprint_changes_with_one_bit_and_with_the_config) {
  const std::string before = component_fingerprint(vae_);
  VaeConfig other = small_vae();
  other.scaling_factor = 0.5;
  AutoencoderKL rescaled(other);
  initialize_parameters(rescaled, 1);
  EXPECT_NE(component_fingerprint(rescaled), before);
  {
    const torch::NoGradGuard no_grad;
    vae_->named_parameters()["decoder.conv_out.bias"][0] += 1e-3;
  }
  EXPECT_NE(component_fingerprint(vae_), before);
}

TEST_F(ModelFolderTest, a_weight_that_float16_does_not_hold_is_refused_by_name) {
  torch::Tensor bias = vae_->named_parameters()["decoder.conv_out.bias"].detach();
  bias[1] = -65519.0F;  // The largest that rounds to 65504.
  EXPECT_TRUE(save_vae(local_files(), vae_, folder_.path("fits"), WeightsDtype::kFloat16).is_ok());
  bias[1] = -65520.0F;
  const Status status = save_vae(local_files(), vae_, folder_.path("vae"), WeightsDtype::kFloat16);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("decoder.conv_out.bias"), HasSubstr("65520")));
  EXPECT_FALSE(std::filesystem::exists(vae_file()));
  EXPECT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok()) << "float32 holds it";
}

TEST_F(ModelFolderTest, float16_files_load_as_their_float32_values) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae"), WeightsDtype::kFloat16).is_ok());
  EXPECT_EQ(SafetensorsFile::open(vae_file()).value()->spec("decoder.conv_out.bias").value().dtype, torch::kFloat16);
  const auto loaded = load_vae(folder_.path("vae")).value();
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), vae_->named_parameters()[item.key()].to(torch::kFloat16).to(torch::kFloat32))) << item.key();
  }
}

TEST_F(ModelFolderTest, reads_bfloat16_and_the_fp16_variant) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  rewrite(vae_file(), [](auto& tensors) {
    for (auto& named : tensors) {
      named.tensor = named.tensor.to(torch::kBFloat16);
    }
  });
  std::filesystem::rename(vae_file(), folder_.path("vae/diffusion_pytorch_model.fp16.safetensors"));
  const auto loaded = load_vae(folder_.path("vae")).value();
  const auto want = vae_->named_parameters()["decoder.conv_in.weight"].to(torch::kBFloat16).to(torch::kFloat32);
  EXPECT_TRUE(at::equal(loaded->named_parameters()["decoder.conv_in.weight"], want));
}

// Splits the saved VAE in two shards with an index of the given name.
void split_vae(const std::string& folder, const std::string& index_name, std::vector<NamedTensor> tensors, const std::string& second_file) {
  const std::vector<NamedTensor> first(tensors.begin(), tensors.begin() + 5), second(tensors.begin() + 5, tensors.end());
  ASSERT_TRUE(write_safetensors(local_files(), folder + "/a.safetensors", first).is_ok());
  ASSERT_TRUE(write_safetensors(local_files(), folder + "/b.safetensors", second).is_ok());
  json map;
  for (const auto& named : first) {
    map[named.name] = "a.safetensors";
  }
  for (const auto& named : second) {
    map[named.name] = second_file;
  }
  std::filesystem::remove(folder + "/diffusion_pytorch_model.safetensors");
  std::ofstream(folder + "/" + index_name) << json{{"weight_map", map}};
}

TEST_F(ModelFolderTest, reads_shards_through_their_index) {
  for (const char* index : {"diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors.index.fp16.json",
                            "diffusion_pytorch_model.fp16.safetensors.index.json"}) {
    const std::string folder = folder_.path("vae");
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(save_vae(local_files(), vae_, folder).is_ok());
    split_vae(folder, index, tensors_of(vae_file()), "b.safetensors");
    EXPECT_EQ(component_fingerprint(load_vae(folder).value()), component_fingerprint(vae_)) << index;
  }
}

TEST_F(ModelFolderTest, an_index_cannot_point_outside_its_folder) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  split_vae(folder_.path("vae"), "diffusion_pytorch_model.safetensors.index.json", tensors_of(vae_file()), "../b.safetensors");
  const auto status = load_vae(folder_.path("vae")).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("../b.safetensors"));
}

TEST_F(ModelFolderTest, reads_the_old_names_of_the_vae_attention) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  rewrite(vae_file(), [](auto& tensors) {
    const std::map<std::string, std::string> to_old = {{"to_q", "query"}, {"to_k", "key"}, {"to_v", "value"}, {"to_out.0", "proj_attn"}};
    int num_renamed = 0;
    for (auto& named : tensors) {
      for (const auto& [now, old] : to_old) {
        if (const auto place = named.name.find("." + now + "."); place != std::string::npos) {
          named.name.replace(place + 1, now.size(), old);
          ++num_renamed;
        }
      }
    }
    ASSERT_EQ(num_renamed, 16);
  });
  EXPECT_EQ(component_fingerprint(load_vae(folder_.path("vae")).value()), component_fingerprint(vae_));
}

TEST_F(ModelFolderTest, reads_text_encoder_names_with_and_without_prefix_and_old_position_ids) {
  ASSERT_TRUE(save_text_encoder(local_files(), text_encoder_, folder_.path("text_encoder")).is_ok());
  rewrite(text_file(), [](auto& tensors) {
    for (auto& named : tensors) {
      ASSERT_TRUE(named.name.starts_with("text_model."));
      named.name = named.name.substr(std::string("text_model.").size());
    }
    tensors.push_back({"embeddings.position_ids", at::arange(9, torch::kInt64)});
  });
  EXPECT_EQ(component_fingerprint(load_text_encoder(folder_.path("text_encoder")).value()), component_fingerprint(text_encoder_));
}

// 0 bytes of weights on disk and in memory, however large the file says it is.
void write_sparse_weights(const std::string& path, const torch::nn::Module& module) {
  json header = json::object();
  int64_t end = 0;
  for (const auto& item : module.named_parameters()) {
    const int64_t begin = end;
    end += item.value().numel() * 4;
    header[item.key()] = {{"dtype", "F32"}, {"shape", item.value().sizes().vec()}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << text;
  std::filesystem::resize_file(path, 8 + length + static_cast<uint64_t>(end));
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

TEST_F(ModelFolderTest, a_full_size_unet_loads_without_a_copy_of_its_weights) {
  const auto preset = find_preset("sd2-base").value();
  write_text(folder_.path("unet/config.json"), preset.unet.to_json().dump());
  write_sparse_weights(unet_file(), *UNet2DConditionModel(preset.unet));
  EXPECT_EQ(std::filesystem::file_size(unet_file()) / 1'000'000, 3463);  // As the published file's 3,463,726,498 bytes.
  const int64_t before = resident_bytes();
  const auto unet = load_unet(folder_.path("unet")).value();
  EXPECT_LT(resident_bytes() - before, 100'000'000);
  EXPECT_EQ(count_parameters(*unet), 865'910'724);
}

TEST_F(ModelFolderTest, changing_a_loaded_parameter_leaves_the_file_alone) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  {
    const auto loaded = load_vae(folder_.path("vae")).value();
    const torch::NoGradGuard no_grad;
    loaded->named_parameters()["decoder.conv_out.bias"].fill_(7);
    EXPECT_NE(component_fingerprint(loaded), component_fingerprint(vae_));
  }
  EXPECT_EQ(component_fingerprint(load_vae(folder_.path("vae")).value()), component_fingerprint(vae_));
}

TEST_F(ModelFolderTest, a_loaded_component_outlives_its_file) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  const auto loaded = load_vae(folder_.path("vae")).value();
  std::filesystem::remove_all(folder_.path("vae"));
  EXPECT_EQ(component_fingerprint(loaded), component_fingerprint(vae_));
}

TEST_F(ModelFolderTest, only_load_any_unet_takes_a_unet_of_sdxl) {
  UNetConfig config = small_unet();
  config.added_embedding = UNetAddedEmbedding{.time_channels = 4, .input_width = 34};
  UNet2DConditionModel unet(config);
  initialize_parameters(unet, 1);
  ASSERT_TRUE(save_unet(local_files(), unet, folder_.path("unet")).is_ok());
  const auto status = load_unet(folder_.path("unet")).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("SDXL"), HasSubstr("text_time")));
  EXPECT_EQ(component_fingerprint(load_any_unet(folder_.path("unet")).value()), component_fingerprint(unet));
}

TEST_F(ModelFolderTest, a_text_encoder_with_projection_comes_back_bit_exact) {
  ClipTextConfig config = small_text();
  config.with_projection = true;
  ClipTextModel text_encoder(config);
  initialize_parameters(text_encoder, 1);
  ASSERT_TRUE(save_text_encoder(local_files(), text_encoder, folder_.path("text_encoder")).is_ok());
  EXPECT_EQ(component_fingerprint(load_text_encoder(folder_.path("text_encoder")).value()), component_fingerprint(text_encoder));
}

TEST_F(ModelFolderTest, names_a_missing_a_surplus_and_a_misshaped_tensor) {
  const auto failure_after = [&](const std::function<void(std::vector<NamedTensor>&)>& change) {
    std::filesystem::remove_all(folder_.path("vae"));
    EXPECT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
    rewrite(vae_file(), change);
    const auto status = load_vae(folder_.path("vae")).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return status.message();
  };
  const auto by_name = [](const std::string& name) { return [name](const NamedTensor& named) { return named.name == name; }; };
  EXPECT_THAT(failure_after([&](auto& tensors) { std::erase_if(tensors, by_name("decoder.conv_in.bias")); }),
              AllOf(HasSubstr("missing"), HasSubstr("decoder.conv_in.bias"), HasSubstr("[16]"), HasSubstr("vae")));
  EXPECT_THAT(failure_after([](auto& tensors) {
                tensors.push_back({"stranger", torch::ones({3, 4})});
              }),
              AllOf(HasSubstr("surplus"), HasSubstr("stranger"), HasSubstr("[3,4]"), HasSubstr(".safetensors")));
  EXPECT_THAT(
      failure_after([&](auto& tensors) { std::ranges::find_if(tensors, by_name("decoder.conv_in.bias"))->tensor = torch::ones({17}); }),
      AllOf(HasSubstr("shape"), HasSubstr("decoder.conv_in.bias"), HasSubstr("[16] [17]"), HasSubstr(".safetensors")));
  EXPECT_THAT(failure_after([&](auto& tensors) {
                std::ranges::find_if(tensors, by_name("decoder.conv_in.bias"))->tensor = torch::ones({16}, torch::kInt32);
              }),
              AllOf(HasSubstr("float16"), HasSubstr("I32")));
}

TEST_F(ModelFolderTest, refuses_the_config_of_another_model) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  const auto as_unet = load_unet(folder_.path("vae")).status();
  EXPECT_EQ(as_unet.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(as_unet.message(), AllOf(HasSubstr("vae/config.json"), HasSubstr("another model"), HasSubstr("AutoencoderKL")));
  EXPECT_THAT(load_text_encoder(folder_.path("vae")).status().message(), HasSubstr("another model"));
}

TEST_F(ModelFolderTest, refuses_pickle_weights_with_the_command_that_converts_them) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  std::filesystem::rename(vae_file(), folder_.path("vae/diffusion_pytorch_model.bin"));
  const auto status = load_vae(folder_.path("vae")).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("weights_only=True"), HasSubstr("diffusion_pytorch_model.bin")));
}

TEST_F(ModelFolderTest, names_what_is_not_there) {
  EXPECT_EQ(load_vae(folder_.path("nowhere")).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  std::filesystem::remove(vae_file());
  EXPECT_EQ(load_vae(folder_.path("vae")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(open_model_folder(folder_.path("nowhere")).status().code(), StatusCode::kNotFound);
  std::filesystem::create_directories(folder_.path("empty"));
  EXPECT_EQ(open_model_folder(folder_.path("empty")).status().code(), StatusCode::kNotFound);
  write_text(folder_.path("file"), "x");
  EXPECT_EQ(open_model_folder(folder_.path("file")).status().code(), StatusCode::kCorruptData);
}

TEST_F(ModelFolderTest, a_damaged_config_is_corrupt_data) {
  write_text(folder_.path("vae/config.json"), "{\"a\":");
  EXPECT_EQ(load_vae(folder_.path("vae")).status().code(), StatusCode::kCorruptData);
  write_text(folder_.path("scheduler/scheduler_config.json"), "[]");
  EXPECT_EQ(open_model_folder(folder_.path()).status().code(), StatusCode::kCorruptData);
}

TEST_F(ModelFolderTest, a_saved_component_is_never_replaced) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  EXPECT_EQ(save_vae(local_files(), vae_, folder_.path("vae")).code(), StatusCode::kAlreadyExists);
}

TEST_F(ModelFolderTest, a_full_disk_is_reported_and_leaves_no_weights) {
  MemoryFileSystem memory;
  FaultInjectingFileSystem files(memory);
  ASSERT_TRUE(save_text_encoder(files, text_encoder_, "whole").is_ok());
  const int64_t num_calls = files.num_calls();
  for (int64_t call = 0; call < num_calls; ++call) {
    files.fail_call(call, Fault::kShortWrite);
    EXPECT_EQ(save_text_encoder(files, text_encoder_, "broken").code(), StatusCode::kResourceExhausted) << call;
    files.heal();
    ASSERT_TRUE(memory.remove_tree("broken").is_ok());
  }
}

TEST_F(ModelFolderTest, the_index_lists_what_is_there) {
  ASSERT_TRUE(save_vae(local_files(), vae_, folder_.path("vae")).is_ok());
  const json scheduler = {{"_class_name", "DDIMScheduler"}, {"prediction_type", "v_prediction"}};
  ASSERT_TRUE(save_model_index(local_files(), folder_.path(), scheduler).is_ok());
  const json index = json::parse(read_file(local_files(), folder_.path("model_index.json")).value());
  EXPECT_EQ(index["_class_name"], "StableDiffusionPipeline");
  EXPECT_EQ(index["vae"], (json{"diffusers", "AutoencoderKL"}));
  EXPECT_EQ(index["scheduler"], (json{"diffusers", "DDIMScheduler"}));
  EXPECT_EQ(index["unet"], (json{nullptr, nullptr}));
  const auto folder = open_model_folder(folder_.path()).value();
  EXPECT_EQ(folder.scheduler_config, scheduler);
  EXPECT_TRUE(folder.has_vae);
  EXPECT_FALSE(folder.has_unet);
}

}  // namespace
}  // namespace darkroom
