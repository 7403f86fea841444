#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "darkroom/files/file_system.h"
#include "darkroom/nn/check_model.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/packing.h"
#include "darkroom/nn/run_component.h"
#include "darkroom/nn/write_model.h"
#include "darkroom/tensor/safetensors.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Small networks whose architecture a single file tells: those of the golden names of original checkpoints.
ModelPreset small_preset(const std::string& version) {
  json names = json::parse(read_file(local_files(), source_path("tests/golden/nn/original_names.json")).value())[version];
  names["unet"]["config"]["cross_attention_dim"] = names["text_encoder"]["config"]["hidden_size"];  // Made for names only, they may differ.
  ModelPreset preset = find_preset(version == "sd1" ? "sd1" : "sd2-768").value();
  preset.unet = UNetConfig::from_json(names["unet"]["config"]).value();
  preset.vae = VaeConfig::from_json(names["vae"]["config"]).value();
  preset.text_encoder = ClipTextConfig::from_json(names["text_encoder"]["config"]).value();
  return preset;
}

TokenizerWriter marked_tokenizer(const std::string& mark) {
  return [mark](const std::string& folder) { return write_file_atomic(local_files(), folder + "/vocab.json", mark); };
}

std::map<std::string, std::string> fingerprints(const std::string& model) {
  std::map<std::string, std::string> found;
  const auto ids = check_model(open_model_folder(model).value(), [&](const PartReport& part) { found[part.name] = part.fingerprint; });
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return found;
}

std::set<std::string> names_beside(const std::string& path) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    names.insert(entry.path().filename());
  }
  return names;
}

class WholeModelTest : public testing::TestWithParam<const char*> {
 protected:
  WholeModelTest() {
    const Status status =
        write_random_model(local_files(), small_preset(GetParam()), 7, WeightsDtype::kFloat32, marked_tokenizer("a"), model_);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  ModelParts parts() const { return parts_of(open_model_folder(model_).value()); }
  std::string bytes_of(const std::string& path) const { return read_file(local_files(), path).value(); }

  TemporaryFolder folder_;
  std::string model_ = folder_.path("model");
};

TEST_P(WholeModelTest, a_random_model_is_complete_and_follows_its_seed) {
  const ModelFolder model = open_model_folder(model_).value();
  EXPECT_TRUE(model.has_unet && model.has_vae && model.has_text_encoder && model.has_tokenizer);
  EXPECT_EQ(model.scheduler_config, small_preset(GetParam()).scheduler);
  const std::string same = folder_.path("same/");  // A slash at the end changes nothing.
  const std::string other = folder_.path("other");
  ASSERT_TRUE(write_random_model(local_files(), small_preset(GetParam()), 7, WeightsDtype::kFloat32, {}, same).is_ok());
  ASSERT_TRUE(write_random_model(local_files(), small_preset(GetParam()), 8, WeightsDtype::kFloat32, {}, other).is_ok());
  EXPECT_EQ(fingerprints(same), fingerprints(model_));
  EXPECT_NE(fingerprints(other), fingerprints(model_));
  EXPECT_FALSE(open_model_folder(same)->has_tokenizer);
}

TEST_P(WholeModelTest, a_folder_exported_as_a_folder_has_the_same_bytes) {
  const std::string copy = folder_.path("copy");
  ASSERT_TRUE(export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, marked_tokenizer("a"), copy).is_ok());
  const auto files = local_files().list_tree(model_).value();
  for (const FileInfo& file : files) {
    const std::string name = file.path.substr(model_.size());
    EXPECT_EQ(bytes_of(copy + name), bytes_of(file.path)) << name;
  }
  EXPECT_EQ(local_files().list_tree(copy)->size(), local_files().list_tree(model_)->size());
}

TEST_P(WholeModelTest, a_folder_exported_as_a_file_and_back_has_the_same_tensors) {
  const std::string file = folder_.path("model.safetensors");
  const Status status = export_single_file(local_files(), parts(), WeightsDtype::kFloat32, file);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(fingerprints(file), fingerprints(model_));
  const std::string back = folder_.path("back");
  ASSERT_TRUE(export_model_folder(local_files(), parts_of(open_model_folder(file).value()), WeightsDtype::kFloat32, {}, back).is_ok());
  EXPECT_EQ(fingerprints(back), fingerprints(model_));
  const std::string again = folder_.path("again.safetensors");
  ASSERT_TRUE(export_single_file(local_files(), parts_of(open_model_folder(file).value()), WeightsDtype::kFloat32, again).is_ok());
  EXPECT_EQ(bytes_of(again), bytes_of(file));
}

TEST_P(WholeModelTest, a_schedule_that_a_file_of_version_1_cannot_tell_is_not_exported) {
  const bool is_version_1 = std::string(GetParam()) == "sd1";
  const std::string file = folder_.path("model.safetensors");
  const auto export_with = [&](const json& scheduler) {
    ModelParts changed = parts();
    changed.scheduler = scheduler;
    std::filesystem::remove(file);
    return export_single_file(local_files(), changed, WeightsDtype::kFloat32, file);
  };
  const json published = find_preset("sd1")->scheduler;
  const std::map<std::string, json> others = {
      {"prediction_type", "v_prediction"}, {"beta_schedule", "linear"},     {"beta_start", 0.0001}, {"beta_end", 0.02},
      {"num_train_timesteps", 500},        {"rescale_betas_zero_snr", true}};
  for (const auto& [field, value] : others) {
    json scheduler = published;
    scheduler[field] = value;
    const Status status = export_with(scheduler);
    EXPECT_EQ(status.code(), is_version_1 ? StatusCode::kFailedPrecondition : StatusCode::kOk) << field;
    EXPECT_EQ(std::filesystem::exists(file), !is_version_1) << field;
    if (is_version_1) {
      EXPECT_THAT(status.message(), AllOf(HasSubstr(field), HasSubstr("export a folder instead")));
    }
  }
  // What is not there is what diffusers takes for it.
  for (const char* field : {"beta_schedule", "beta_start", "beta_end"}) {
    json scheduler = published;
    scheduler.erase(field);
    EXPECT_EQ(export_with(scheduler).is_ok(), !is_version_1) << field;
    scheduler["_class_name"] = "LCMScheduler";
    EXPECT_TRUE(export_with(scheduler).is_ok()) << field;
  }
  json scheduler = published;
  scheduler.erase("prediction_type");
  scheduler.erase("num_train_timesteps");
  EXPECT_TRUE(export_with(scheduler).is_ok());
  EXPECT_TRUE(export_with(json()).is_ok());
}

TEST_P(WholeModelTest, another_frozen_part_than_the_one_trained_with_is_not_exported) {
  ModelParts checked = parts();
  checked.frozen_fingerprints = fingerprints(model_);
  EXPECT_TRUE(export_model_folder(local_files(), checked, WeightsDtype::kFloat32, {}, folder_.path("right")).is_ok());
  EXPECT_TRUE(export_single_file(local_files(), checked, WeightsDtype::kFloat32, folder_.path("right.safetensors")).is_ok());
  const auto before = names_beside(model_);
  for (const char* part : {"vae", "text_encoder"}) {
    ModelParts other = checked;
    other.frozen_fingerprints[part] = "another";
    for (const Status& status : {export_model_folder(local_files(), other, WeightsDtype::kFloat32, {}, folder_.path("wrong")),
                                 export_single_file(local_files(), other, WeightsDtype::kFloat32, folder_.path("wrong"))}) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(status.message(), AllOf(HasSubstr("--frozen"), HasSubstr(model_ + "/" + part)));
    }
    EXPECT_EQ(names_beside(model_), before);
  }
}

TEST_P(WholeModelTest, float16_halves_the_files) {
  const std::string half = folder_.path("half");
  ASSERT_TRUE(export_model_folder(local_files(), parts(), WeightsDtype::kFloat16, {}, half).is_ok());
  const std::string weights = "/unet/diffusion_pytorch_model.safetensors";
  EXPECT_LT(std::filesystem::file_size(half + weights), std::filesystem::file_size(model_ + weights) * 6 / 10);
}

TEST_P(WholeModelTest, parts_that_are_absent_are_left_out_of_a_folder_and_missed_in_a_file) {
  std::filesystem::remove_all(model_ + "/text_encoder");
  const std::string copy = folder_.path("copy");
  ASSERT_TRUE(export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, {}, copy).is_ok());
  EXPECT_FALSE(open_model_folder(copy)->has_text_encoder);
  const Status file = export_single_file(local_files(), parts(), WeightsDtype::kFloat32, folder_.path("file"));
  EXPECT_EQ(file.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(file.message(), HasSubstr("text_encoder"));
  EXPECT_EQ(export_model_folder(local_files(), {}, WeightsDtype::kFloat32, {}, folder_.path("none")).code(), StatusCode::kNotFound);
}

TEST_P(WholeModelTest, what_is_there_is_never_replaced_and_a_failure_leaves_nothing) {
  EXPECT_EQ(export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, {}, model_).code(), StatusCode::kAlreadyExists);
  const auto broken = [](const std::string&) { return Status::unavailable("no tokenizer today"); };
  const std::string out = folder_.path("out");
  const auto before = names_beside(out);
  EXPECT_EQ(export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, broken, out).code(), StatusCode::kUnavailable);
  EXPECT_EQ(names_beside(out), before);
}

TEST_P(WholeModelTest, what_lies_beside_the_output_stays_and_of_two_writers_one_wins) {
  const std::string out = folder_.path("out");
  std::filesystem::create_directories(out + ".partial/mine");
  const auto before = names_beside(out);
  const auto other_is_first = [&](const std::string&) {
    return export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, {}, out);
  };
  EXPECT_EQ(export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, other_is_first, out).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(out + ".partial/mine"));
  EXPECT_EQ(fingerprints(out), fingerprints(model_));
  std::filesystem::remove_all(out);
  EXPECT_EQ(names_beside(out), before);
}

TEST_P(WholeModelTest, check_counts_parameters_and_ids) {
  std::map<std::string, int64_t> counts;
  const auto num_ids =
      check_model(open_model_folder(model_).value(), [&](const PartReport& part) { counts[part.name] = part.num_parameters; });
  const ModelPreset preset = small_preset(GetParam());
  EXPECT_EQ(num_ids.value(), preset.text_encoder.vocab_size);
  EXPECT_EQ(counts, (std::map<std::string, int64_t>{{"unet", count_parameters(*UNet2DConditionModel(preset.unet))},
                                                    {"vae", count_parameters(*AutoencoderKL(preset.vae))},
                                                    {"text_encoder", count_parameters(*ClipTextModel(preset.text_encoder))}}));
}

TEST_P(WholeModelTest, check_finds_a_weight_that_is_no_number_and_parts_that_do_not_fit) {
  const auto failure = [&] { return check_model(open_model_folder(model_).value(), [](const PartReport&) {}).status(); };
  ClipTextConfig wider = small_preset(GetParam()).text_encoder;
  wider.hidden_size *= 2;
  ClipTextModel text_encoder(wider);
  initialize_parameters(text_encoder, 1);
  std::filesystem::remove_all(model_ + "/text_encoder");
  ASSERT_TRUE(save_text_encoder(local_files(), text_encoder, model_ + "/text_encoder").is_ok());
  EXPECT_THAT(failure().message(), AllOf(HasSubstr("do not fit"), HasSubstr("hidden_size")));
  AutoencoderKL vae(small_preset(GetParam()).vae);
  initialize_parameters(vae, 1);
  vae->parameters()[3].data().fill_(std::numeric_limits<float>::quiet_NaN());
  std::filesystem::remove_all(model_ + "/vae");
  ASSERT_TRUE(save_vae(local_files(), vae, model_ + "/vae").is_ok());
  EXPECT_EQ(failure().code(), StatusCode::kCorruptData);
  EXPECT_THAT(failure().message(), HasSubstr("/vae"));
}

TEST_P(WholeModelTest, a_stop_request_ends_the_writing_and_leaves_nothing) {
  std::stop_source stop;
  stop.request_stop();
  const std::string out = folder_.path("out");
  const auto expect_nothing = [&](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(out));
    EXPECT_EQ(names_beside(out), std::set<std::string>{"model"});
  };
  expect_nothing(write_random_model(local_files(), small_preset(GetParam()), 7, WeightsDtype::kFloat32, {}, out, stop.get_token()));
  expect_nothing(export_model_folder(local_files(), parts(), WeightsDtype::kFloat32, {}, out, stop.get_token()));
  expect_nothing(export_single_file(local_files(), parts(), WeightsDtype::kFloat32, out, stop.get_token()));
}

TEST_P(WholeModelTest, a_stop_request_ends_the_check_before_the_next_network) {
  std::stop_source stop;
  std::vector<std::string> parts;
  const auto stop_after_first = [&](const PartReport& part) {
    parts.push_back(part.name);
    stop.request_stop();
  };
  EXPECT_EQ(check_model(open_model_folder(model_).value(), stop_after_first, stop.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(parts, std::vector<std::string>{"unet"});
}

INSTANTIATE_TEST_SUITE_P(Versions, WholeModelTest, testing::Values("sd1", "sd2"), [](const auto& info) { return std::string(info.param); });

class RunComponentTest : public testing::Test {
 protected:
  RunComponentTest() {
    EXPECT_TRUE(write_random_model(local_files(), small_preset("sd1"), 7, WeightsDtype::kFloat32, {}, run_.model).is_ok());
  }
  void write_inputs(const std::vector<NamedTensor>& tensors) {
    std::filesystem::remove(run_.inputs);
    ASSERT_TRUE(write_safetensors(local_files(), run_.inputs, tensors).is_ok());
  }

  TemporaryFolder folder_;
  ComponentRun run_ = {.model = folder_.path("model"),
                       .component = "vae_decoder",
                       .inputs = folder_.path("in.safetensors"),
                       .output = folder_.path("out.safetensors")};
};

TEST_F(RunComponentTest, gives_the_output_and_gradients_and_replaces_an_earlier_output) {
  const torch::Tensor latents = at::linspace(-1, 1, 4 * 4 * 4).reshape({1, 4, 4, 4});
  write_inputs({{"sample", latents}, {"cotangent.image", torch::ones({1, 3, 8, 8})}});
  ASSERT_TRUE(run_component(run_).is_ok());
  AutoencoderKL vae = load_vae(run_.model + "/vae").value();
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(SafetensorsFile::open(run_.output).value()->tensor("image").value(), vae->decode(latents)));
  run_.gradients = true;
  run_.model += "/vae";  // The component's own folder.
  const Status status = run_component(run_);
  ASSERT_TRUE(status.is_ok()) << status.message();
  const auto written = SafetensorsFile::open(run_.output).value();
  EXPECT_EQ(written->spec("grad_input.sample")->shape, latents.sizes().vec());
  EXPECT_TRUE(written->contains("grad.decoder.conv_out.weight"));
}

TEST_F(RunComponentTest, packs_when_asked_but_not_for_gradients) {
  const torch::Tensor latents = at::linspace(-1, 1, 4 * 4 * 4).reshape({1, 4, 4, 4});
  write_inputs({{"sample", latents}, {"cotangent.image", torch::ones({1, 3, 8, 8})}});
  run_.packed = true;
  ASSERT_TRUE(run_component(run_).is_ok());
  AutoencoderKL vae = load_vae(run_.model + "/vae").value();
  const torch::NoGradGuard no_grad;
  pack_network(*vae);
  EXPECT_TRUE(at::equal(SafetensorsFile::open(run_.output).value()->tensor("image").value(), vae->decode(latents)));
  run_.gradients = true;
  EXPECT_EQ(run_component(run_).code(), StatusCode::kInvalidArgument);
}

TEST_F(RunComponentTest, says_what_does_not_fit) {
  write_inputs({{"sample", torch::zeros({1, 5, 4, 4})}});
  EXPECT_EQ(run_component(run_).code(), StatusCode::kFailedPrecondition);
  write_inputs({{"other", torch::zeros({1})}});
  EXPECT_EQ(run_component(run_).code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(run_.output));
  run_.component = "decoder";
  EXPECT_EQ(run_component(run_).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(run_component(run_).message(), HasSubstr("vae_decoder"));
}

TEST_F(RunComponentTest, a_stop_request_leaves_no_output) {
  write_inputs({{"sample", torch::zeros({1, 4, 4, 4})}});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(run_component(run_, stop.get_token()).code(), StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(run_.output));
}

}  // namespace
}  // namespace darkroom
