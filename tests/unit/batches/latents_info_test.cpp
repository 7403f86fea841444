#include "darkroom/batches/latents_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include <nlohmann/json.hpp>

#include "darkroom/core/sha256.h"
#include "darkroom/tables/tensor_forms.h"
#include "darkroom/tensor/safetensors.h"
#include "support/temporary_folder.h"
#include "unit/feed/small_datasets.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const nlohmann::json kMadeBy = {{"vae_fingerprint", "vae-1"},
                                {"text_encoder_fingerprint", "text-1"},
                                {"tokenizer_dialect", "hf"},
                                {"scaling_factor", 0.25},
                                {"empty_caption_sha256", "hash-1"}};

class LatentsInfo : public testing::Test {
 protected:
  void write(const std::string& name, const nlohmann::json& made_by) {
    write_small_latents(folder_.path("d"), name, {.num_rows = 2, .footer = {{kLatentsFooterKey, made_by.dump()}}});
  }
  Result<LatentsDatasetInfo> read() const {
    DARKROOM_ASSIGN_OR_RETURN(const IndexedDataset indexed, index_latents(find_local_dataset(folder_.path("d")).value()));
    return read_latents_info(indexed);
  }

  TemporaryFolder folder_;
};

TEST_F(LatentsInfo, is_what_all_shards_say) {
  write("a.parquet", nlohmann::json::object());
  write("b.parquet", kMadeBy);
  nlohmann::json elsewhere = kMadeBy;
  elsewhere["empty_caption_sha256"] = "hash-2";
  elsewhere["seed"] = 7;
  write("c.parquet", elsewhere);
  const auto info = read();
  ASSERT_TRUE(info.is_ok()) << info.status().to_string();
  EXPECT_EQ(info->vae_fingerprint, "vae-1");
  EXPECT_EQ(info->text_encoder_fingerprint, "text-1");
  EXPECT_EQ(info->tokenizer_dialect, "hf");
  EXPECT_EQ(info->scaling_factor, 0.25);
  EXPECT_EQ(info->empty_caption_hashes, (std::vector<std::string>{"hash-1", "hash-2"}));
  EXPECT_TRUE(info->unfit.is_ok()) << info->unfit.to_string();
}

TEST_F(LatentsInfo, names_two_shards_that_do_not_go_together) {
  for (const auto& [field, other, named] : {std::tuple("vae_fingerprint", nlohmann::json("vae-2"), "another VAE"),
                                            std::tuple("text_encoder_fingerprint", nlohmann::json("text-2"), "another text encoder"),
                                            std::tuple("tokenizer_dialect", nlohmann::json("open_clip"), "another tokenizer dialect"),
                                            std::tuple("scaling_factor", nlohmann::json(0.125), "another scaling factor")}) {
    std::filesystem::remove_all(folder_.path("d"));
    write("a.parquet", nlohmann::json::object());
    write("b.parquet", kMadeBy);
    nlohmann::json made_by = kMadeBy;
    made_by[field] = other;
    write("c.parquet", made_by);
    const auto info = read();
    ASSERT_TRUE(info.is_ok()) << "a run that has begun on them goes on: " << info.status().to_string();
    EXPECT_EQ(info->vae_fingerprint, "vae-1") << field;
    const Status& unfit = info->unfit;
    EXPECT_EQ(unfit.code(), StatusCode::kFailedPrecondition) << field;
    EXPECT_THAT(unfit.message(), AllOf(HasSubstr(named), HasSubstr("d/b.parquet"), HasSubstr("d/c.parquet"))) << field;
  }
}

TEST_F(LatentsInfo, a_damaged_record_is_told_wherever_it_stands) {
  write("a.parquet", kMadeBy);
  write("b.parquet", {{"vae_fingerprint", 3}});
  const Status refused = read().status();
  EXPECT_EQ(refused.code(), StatusCode::kCorruptData);
  EXPECT_THAT(refused.message(), HasSubstr("d/b.parquet"));
}

class EmptyCaptionOfADataset : public testing::Test {
 protected:
  EmptyCaptionOfADataset() { write_small_latents(folder_.path("d"), "a.parquet", {.num_rows = 2}); }
  void put(const torch::Tensor& states, const SafetensorsMetadata& metadata = {}) {
    const std::string path = folder_.path("d/_empty_caption.safetensors");
    std::filesystem::remove(path);
    ASSERT_TRUE(write_safetensors(local_files(), path, {{"caption_embeddings", states}}, metadata).is_ok());
  }
  Result<DropoutStates> read(const LatentsDatasetInfo& info = {}, const std::vector<int64_t>& shape = kSmallStatesShape) const {
    return read_empty_caption(find_local_dataset(folder_.path("d")).value(), info, shape);
  }

  TemporaryFolder folder_;
  const torch::Tensor states_ = torch::arange(6).reshape({2, 3}).to(torch::kFloat16);
  const std::string hash_ = sha256_hex({static_cast<const char*>(states_.const_data_ptr()), states_.nbytes()});
};

TEST_F(EmptyCaptionOfADataset, is_read_and_told_when_it_is_missing_or_has_another_shape) {
  EXPECT_EQ(read().status().code(), StatusCode::kNotFound);
  EXPECT_THAT(read().status().message(), HasSubstr("caption dropout"));
  put(states_);
  const auto got = read();
  ASSERT_TRUE(got.is_ok()) << got.status().to_string();
  EXPECT_TRUE(torch::equal(got->states_tw, states_.to(torch::kFloat32)));
  EXPECT_EQ(read({}, {77, 3}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(EmptyCaptionOfADataset, is_of_the_text_encoder_of_the_shards) {
  const LatentsDatasetInfo info{.text_encoder_fingerprint = "text-1", .empty_caption_hashes = {"of another processor", hash_}};
  const LatentsDatasetInfo other{.text_encoder_fingerprint = "text-1", .empty_caption_hashes = {"other"}};
  const auto fits = [&](const LatentsDatasetInfo& of_shards, StatusCode unfit, StatusCode doubt) {
    const auto got = read(of_shards);
    ASSERT_TRUE(got.is_ok()) << got.status().to_string();
    EXPECT_EQ(got->unfit.code(), unfit) << got->unfit.to_string();
    EXPECT_EQ(got->doubt.code(), doubt) << got->doubt.to_string();
    for (const Status& status : {got->unfit, got->doubt}) {
      EXPECT_TRUE(status.is_ok() || status.message().find("d/_empty_caption.safetensors") != std::string::npos) << status.to_string();
    }
  };
  put(states_);
  fits({}, StatusCode::kOk, StatusCode::kOk);
  fits(info, StatusCode::kOk, StatusCode::kOk);
  fits(other, StatusCode::kOk, StatusCode::kFailedPrecondition);  // Older versions recorded the states that a process made itself.
  put(states_, {{kTextEncoderKey, "text-1"}});
  fits(other, StatusCode::kOk, StatusCode::kOk);  // Other bytes, as of another kind of processor.
  put(states_, {{kTextEncoderKey, "text-2"}});
  fits(info, StatusCode::kFailedPrecondition, StatusCode::kOk);
}

TEST_F(EmptyCaptionOfADataset, holds_numbers) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    torch::Tensor states = states_.clone();
    states[1][2] = value;
    put(states);
    EXPECT_EQ(read().status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(read().status().message(), HasSubstr("d/_empty_caption.safetensors"));
  }
}

}  // namespace
}  // namespace darkroom
