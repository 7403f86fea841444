#include "opening/open_painter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/nn/component_config.h"
#include "darkroom/nn/model_folder.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string shipped_tokenizer() { return source_path("models/tiny/tokenizer"); }

// A small model of a published version with the whole vocabulary.
struct Version {
  std::string name;
  std::string preset;           // Whose scheduler it has.
  std::string prediction_type;  // What a single file has to be told.
  const char* padding;          // The token, as the published folder says.
  int32_t pad_id;
};

std::ostream& operator<<(std::ostream& out, const Version& version) { return out << version.name; }

ModelPreset small_model(const Version& version) {
  const std::string names = read_file(local_files(), source_path("tests/golden/nn/original_names.json")).value();
  json configs = json::parse(names)[version.name];
  configs["text_encoder"]["config"].update({{"vocab_size", 49408}, {"max_position_embeddings", 77}});
  configs["unet"]["config"]["cross_attention_dim"] = configs["text_encoder"]["config"]["hidden_size"];
  ModelPreset preset = find_preset(version.preset).value();
  preset.unet = UNetConfig::from_json(configs["unet"]["config"]).value();
  preset.vae = VaeConfig::from_json(configs["vae"]["config"]).value();
  preset.text_encoder = ClipTextConfig::from_json(configs["text_encoder"]["config"]).value();
  return preset;
}

// The shipped vocabulary with another padding, as it stands in published folders.
Status write_published_tokenizer(const char* padding, const std::string& folder) {
  for (const char* name : {"vocab.json", "merges.txt", "special_tokens_map.json", "tokenizer_config.json"}) {
    DARKROOM_ASSIGN_OR_RETURN(std::string bytes, read_file(local_files(), join_path(shipped_tokenizer(), name)));
    json settings = json::parse(bytes, nullptr, false);
    if (settings.is_object() && settings.contains("pad_token")) {
      settings["pad_token"]["content"] = padding;
      bytes = settings.dump();
    }
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), join_path(folder, name), bytes));
  }
  return Status::ok();
}

class SingleFilePainterTest : public testing::TestWithParam<Version> {
 protected:
  SingleFilePainterTest() {
    at::set_num_threads(1);
    const Status written = write_random_model(
        local_files(), small_model(GetParam()), 3, WeightsDtype::kFloat32,
        [](const std::string& folder) { return write_published_tokenizer(GetParam().padding, folder); }, folder_);
    EXPECT_TRUE(written.is_ok()) << written.message();
    const Status exported = export_single_file(local_files(), parts_of(open_model_folder(folder_).value()), WeightsDtype::kFloat32, file_);
    EXPECT_TRUE(exported.is_ok()) << exported.message();
  }

  static Painting paint(const PainterSource& source) {
    const auto painter = open_painter(source);
    EXPECT_TRUE(painter.is_ok()) << painter.status().message();
    PaintRequest request;
    request.prompts = {"a photograph of an astronaut", ""};
    request.seeds = {1, 2};
    request.sampler.num_steps = 3;
    request.width = request.height = 16;
    return painter.value()->paint(request).value();
  }

  PainterSource source_of(const std::string& model) const {
    PainterSource source;
    source.model = model;
    source.shipped_tokenizer = shipped_tokenizer();
    return source;
  }
  PainterSource single_file() const {
    PainterSource source = source_of(file_);
    source.prediction_type = GetParam().prediction_type;
    return source;
  }

  TemporaryFolder temporary_;
  std::string folder_ = temporary_.path("model");
  std::string file_ = temporary_.path("single/model.safetensors");
};

TEST_P(SingleFilePainterTest, paints_the_same_picture_to_the_last_bit_as_the_folder) {
  const Painting want = paint(source_of(folder_));
  const Painting got = paint(single_file());
  EXPECT_TRUE(at::equal(got.latents_nchw, want.latents_nchw));
  EXPECT_EQ(got.images, want.images);
}

TEST_P(SingleFilePainterTest, pads_captions_as_the_version_does) {
  const FoundModel found = find_model(single_file()).value();
  EXPECT_FALSE(found.has_own_tokenizer);
  EXPECT_EQ(load_tokenizer(found, TokenizerDialect::kHuggingFace).value()->pad_id(), GetParam().pad_id);
  const auto ids_of = [](const FoundModel& model) {
    std::vector<int32_t> ids(ClipTokenizer::kContextLength);
    load_tokenizer(model, TokenizerDialect::kHuggingFace).value()->encode("a photograph of an astronaut", ids);
    return ids;
  };
  EXPECT_EQ(ids_of(found), ids_of(find_model(source_of(folder_)).value()));
}

TEST_P(SingleFilePainterTest, exported_as_a_folder_again_it_paints_the_same_picture) {
  const FoundModel found = find_model(single_file()).value();
  const std::string back = temporary_.path("back");
  ASSERT_TRUE(export_model_folder(local_files(), found.parts, WeightsDtype::kFloat32, tokenizer_writer(found), back).is_ok());
  EXPECT_EQ(paint(source_of(back)).images, paint(source_of(folder_)).images);
}

TEST_P(SingleFilePainterTest, only_version_2_has_to_be_told_what_it_predicts) {
  const auto opened = open_painter(source_of(file_));
  EXPECT_EQ(opened.is_ok(), GetParam().name == "sd1");
  if (!opened.is_ok()) {
    EXPECT_EQ(opened.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(opened.status().message(), AllOf(HasSubstr("--prediction-type"), HasSubstr("model.safetensors")));
  }
}

TEST_P(SingleFilePainterTest, counts_the_weights_that_it_loads_and_no_others) {
  const auto painter = open_painter(source_of(folder_));
  ASSERT_TRUE(painter.is_ok());
  const FoundModel found = find_model(source_of(folder_)).value();
  const int64_t want = static_cast<int64_t>(sizeof(float)) *
                       (count_parameters(*load_unet(found.parts.unet).value()) + count_parameters(*load_vae(found.parts.vae).value()) +
                        count_parameters(*load_text_encoder(found.parts.text_encoder).value()));
  EXPECT_EQ(painter_bytes(source_of(folder_)).value(), want);
  EXPECT_EQ(painter_bytes(single_file()).value(), want);
  const std::string weights = found.parts.unet + "/diffusion_pytorch_model";
  std::filesystem::copy_file(weights + ".safetensors", weights + ".non_ema.safetensors");
  EXPECT_EQ(painter_bytes(source_of(folder_)).value(), want);
}

TEST_P(SingleFilePainterTest, a_stop_request_ends_its_loading) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(open_painter(single_file(), stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST_P(SingleFilePainterTest, refuses_what_does_not_belong_to_it) {
  PainterSource source = single_file();
  source.frozen = folder_;
  EXPECT_EQ(open_painter(source).status().code(), StatusCode::kInvalidArgument);
  source = single_file();
  source.prediction_type = "v";
  EXPECT_THAT(open_painter(source).status().message(), HasSubstr("v_prediction, got: v"));
  source = single_file();
  source.shipped_tokenizer.clear();
  EXPECT_EQ(open_painter(source).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(open_painter(source).status().message(), HasSubstr("tokenizer"));
  source = single_file();
  source.weights = "last";
  EXPECT_EQ(open_painter(source).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(SingleFilePainterTest, a_checkpoint_is_neither_painted_nor_exported_with_another_frozen_part) {
  const std::string checkpoint = temporary_.path("step-00000001");
  FileDigests digests;
  for (const char* component : {"unet", "ema"}) {
    ASSERT_TRUE(save_unet(local_files(), load_unet(folder_ + "/unet").value(), join_path(checkpoint, component)).is_ok());
    for (const char* name : {"config.json", kComponentWeightsFile}) {
      const std::string file = join_path(component, name);
      digests[file] = digest_file(local_files(), join_path(checkpoint, file)).value();
    }
  }
  const std::string moments = moments_file(0, 1);
  ASSERT_TRUE(write_file_atomic(local_files(), join_path(checkpoint, moments), "").is_ok());  // Nobody looks into it here.
  digests[moments] = digest_file(local_files(), join_path(checkpoint, moments)).value();
  const auto with_vae = [&](const std::string& fingerprint) {
    CheckpointRecord record;
    record.component = "unet";
    record.frozen_path = folder_;
    record.frozen_fingerprints = {{"vae", fingerprint}};
    ASSERT_TRUE(write_file_atomic(local_files(), checkpoint + "/state.json", print_checkpoint_record(record, digests)).is_ok());
  };
  PainterSource source = source_of(checkpoint);
  source.weights = "unet";
  with_vae(component_fingerprint(load_vae(folder_ + "/vae").value()));
  EXPECT_TRUE(open_painter(source).is_ok());
  with_vae("another");
  const Status exported =
      export_model_folder(local_files(), find_model(source).value().parts, WeightsDtype::kFloat32, {}, temporary_.path("out"));
  for (const Status& status : {exported, open_painter(source).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("--frozen"), HasSubstr(folder_ + "/vae")));
  }
}

TEST_P(SingleFilePainterTest, a_folder_can_be_told_to_predict_otherwise) {
  PainterSource source = source_of(folder_);
  source.prediction_type = GetParam().prediction_type == "v_prediction" ? "epsilon" : "v_prediction";
  EXPECT_NE(paint(source).images, paint(source_of(folder_)).images);
}

INSTANTIATE_TEST_SUITE_P(Versions, SingleFilePainterTest,
                         testing::Values(Version{"sd1", "sd1", "", "<|endoftext|>", 49407}, Version{"sd2", "sd2-base", "epsilon", "!", 0},
                                         Version{"sd2", "sd2-768", "v_prediction", "!", 0}),
                         [](const auto& info) { return info.param.name + info.param.prediction_type; });

}  // namespace
}  // namespace darkroom
