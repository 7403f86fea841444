#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/show/inspect.h"
#include "darkroom/tensor/safetensors.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class InspectFolders : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path(name), text).is_ok());
  }
  void put_tensor(const std::string& name, const torch::Tensor& tensor) {
    ASSERT_TRUE(local_files().create_folders(folder_.path(name.substr(0, name.rfind('/')))).is_ok());
    ASSERT_TRUE(write_safetensors(local_files(), folder_.path(name), {{"weight", tensor}}).is_ok());
  }
  /// A checkpoint with the record that training writes.
  void put_checkpoint(const std::string& name, int64_t step, const torch::Tensor& weight) {
    const CheckpointRecord record{.step = step,
                                  .samples = 4 * step,
                                  .batch_number = step,
                                  .optimizer_updates = step,
                                  .component = "unet",
                                  .index_hash = "abc",
                                  .recipe = "",
                                  .frozen_path = "models/tiny"};
    FileDigests digests;
    put_tensor(name + "/optimizer-00000-of-00001.safetensors", torch::zeros({3}));
    for (const std::string part : {"/unet", "/ema"}) {
      put_tensor(name + part + "/diffusion_pytorch_model.safetensors", weight);
      put(name + part + "/config.json", "{}");
    }
    const std::string folder = folder_.path(name);
    const auto written = local_files().list_tree(folder);
    ASSERT_TRUE(written.is_ok());
    for (const FileInfo& file : *written) {
      digests[file.path.substr(folder.size() + 1)] = digest_file(local_files(), file.path).value();
    }
    put(name + "/state.json", print_checkpoint_record(record, digests));
  }
  void put_vae(const std::string& name) {
    AutoencoderKL vae(find_preset("tiny")->vae);
    initialize_parameters(vae, 1);
    ASSERT_TRUE(save_vae(local_files(), vae, folder_.path(name)).is_ok());
    num_vae_parameters_ = count_parameters(*vae);
    vae_fingerprint_ = component_fingerprint(vae);
  }
  void damage_byte(const std::string& name, size_t from_end) {
    std::string bytes = read_file(local_files(), folder_.path(name)).value();
    bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 0x01);
    put(name, bytes);
  }
  InspectReport look(const std::string& name, bool verify = false) {
    auto report = inspect(local_files(), {.uri = folder_.path(name), .verify = verify}, {});
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    return report.is_ok() ? *report : InspectReport();
  }

  TemporaryFolder folder_;
  int64_t num_vae_parameters_ = 0;
  std::string vae_fingerprint_;
};

TEST_F(InspectFolders, describes_a_checkpoint) {
  put_checkpoint("step-00000012", 12, torch::ones({3, 5}));
  const InspectReport report = look("step-00000012", true);
  EXPECT_EQ(report.kind, "checkpoint");
  EXPECT_EQ(report.summary["step"], 12);
  EXPECT_EQ(report.summary["samples"], 48);
  EXPECT_EQ(report.summary["components"]["ema"]["parameters"], 15);
  EXPECT_THAT(report.damage, ElementsAre());
  EXPECT_THAT(report.to_text(), HasSubstr("15 parameters in 1 tensors (F32)"));
}

TEST_F(InspectFolders, verify_names_the_damaged_file_of_a_checkpoint) {
  put_checkpoint("c", 1, torch::ones({3}));
  damage_byte("c/ema/diffusion_pytorch_model.safetensors", 1);
  EXPECT_EQ(look("c").num_damages, 0);
  EXPECT_THAT(look("c", true).damage, ElementsAre(HasSubstr("c/ema/diffusion_pytorch_model.safetensors")));
  ASSERT_TRUE(local_files().remove_file(folder_.path("c/ema/diffusion_pytorch_model.safetensors")).is_ok());
  EXPECT_THAT(look("c", true).damage, ElementsAre(HasSubstr("c/ema/diffusion_pytorch_model.safetensors")));
}

TEST_F(InspectFolders, verify_finds_a_changed_state_and_weights_that_are_no_numbers) {
  put_checkpoint("c", 1, torch::full({3}, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_THAT(look("c", true).damage, SizeIs(2)) << "unet and ema";
  std::string state = read_file(local_files(), folder_.path("c/state.json")).value();
  state.replace(state.find("\"step\": 1"), 9, "\"step\": 2");
  put("c/state.json", state);
  EXPECT_THAT(look("c", true).damage, ElementsAre(AllOf(HasSubstr("/c: "), HasSubstr("state.json is damaged"))));
  EXPECT_EQ(inspect(local_files(), {.uri = folder_.path("c")}, {}).status().code(), StatusCode::kCorruptData);
  put("c/state.json", "{\"files\":");
  EXPECT_THAT(look("c", true).damage, ElementsAre(HasSubstr("/c: state.json is damaged")));
  EXPECT_EQ(inspect(local_files(), {.uri = folder_.path("c")}, {}).status().code(), StatusCode::kCorruptData);
}

TEST_F(InspectFolders, describes_and_verifies_a_run_folder) {
  put("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1.5,\"samples\":8}\n");
  put_checkpoint("run/checkpoints/step-00000001", 1, torch::ones({3}));
  put_checkpoint("run/checkpoints/step-00000002", 2, torch::ones({3}));
  put("run/checkpoints/step-00000003/half.txt", "no state yet");
  put("run/checkpoints/_tmp/x/state.json", "{}");
  put("run/checkpoints/damaged-step-00000009/state.json", "{}");
  const InspectReport report = look("run/", true);
  EXPECT_EQ(report.kind, "run folder");
  EXPECT_THAT(report.summary["checkpoints"], SizeIs(2));
  EXPECT_EQ(report.summary["checkpoints"][1]["step"], 2);
  EXPECT_EQ(report.summary["metrics"]["lines"], 2);
  EXPECT_EQ(report.summary["metrics"]["last_loss"], 1.5);
  EXPECT_THAT(report.damage, ElementsAre());
  damage_byte("run/checkpoints/step-00000001/unet/diffusion_pytorch_model.safetensors", 1);
  EXPECT_THAT(look("run", true).damage, ElementsAre(HasSubstr("step-00000001/unet")));
}

TEST_F(InspectFolders, describes_a_model_folder_and_its_parts) {
  put("model/model_index.json", "{\"_class_name\":\"StableDiffusionPipeline\"}");
  put("model/scheduler/scheduler_config.json", "{\"_class_name\":\"PNDMScheduler\",\"prediction_type\":\"epsilon\"}");
  put_vae("model/vae");
  const InspectReport report = look("model", true);
  EXPECT_EQ(report.kind, "model folder");
  const auto& vae = report.summary["components"]["vae"];
  EXPECT_EQ(vae["class"], "AutoencoderKL");
  EXPECT_EQ(vae["parameters"], num_vae_parameters_);
  EXPECT_EQ(vae["fingerprint"], vae_fingerprint_);
  EXPECT_EQ(report.summary["scheduler"]["_class_name"], "PNDMScheduler");
  EXPECT_THAT(report.damage, ElementsAre());
  const InspectReport part = look("model/vae");
  EXPECT_EQ(part.kind, "model component");
  EXPECT_EQ(part.summary["components"]["vae"]["parameters"], num_vae_parameters_);
}

TEST_F(InspectFolders, verify_finds_weights_that_do_not_fit_their_config) {
  put_vae("model/vae");
  put_tensor("model/vae/extra.safetensors", torch::ones({2}));
  ASSERT_TRUE(local_files().remove_file(folder_.path("model/vae/diffusion_pytorch_model.safetensors")).is_ok());
  EXPECT_EQ(look("model").num_damages, 0);
  EXPECT_THAT(look("model", true).damage, ElementsAre(HasSubstr("model/vae")));
}

TEST_F(InspectFolders, lists_the_tensors_of_one_safetensors_file) {
  put_tensor("weights/a.safetensors", torch::tensor({1.0F, std::numeric_limits<float>::infinity()}));
  const InspectReport report = look("weights/a.safetensors", true);
  EXPECT_EQ(report.kind, "safetensors file");
  EXPECT_EQ(report.tables[1].rows[0], (std::vector<std::string>{"weight", "F32", "[2]"}));
  EXPECT_THAT(report.damage, ElementsAre(AllOf(HasSubstr("tensor weight"), HasSubstr("1 of 2"))));
}

TEST_F(InspectFolders, a_sheet_needs_pictures) {
  put_vae("model/vae");
  const auto report = inspect(local_files(), {.uri = folder_.path("model"), .sheet_path = folder_.path("sheet.png")}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(InspectFolders, an_empty_folder_is_nothing_that_is_known) {
  ASSERT_TRUE(local_files().create_folders(folder_.path("empty")).is_ok());
  EXPECT_EQ(inspect(local_files(), {.uri = folder_.path("empty")}, {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
