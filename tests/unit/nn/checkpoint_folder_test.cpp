#include "darkroom/nn/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/foreign_checkpoint.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

const CheckpointRecord kRecord{.step = 5,
                               .samples = 20,
                               .batch_number = 5,
                               .optimizer_updates = 4,
                               .component = "unet",
                               .index_hash = "hash",
                               .recipe = "",
                               .frozen_path = ""};

const std::vector<std::string> kFiles = {"unet/config.json",
                                         "unet/diffusion_pytorch_model.safetensors",
                                         "ema/config.json",
                                         "ema/diffusion_pytorch_model.safetensors",
                                         "optimizer-00000-of-00002.safetensors",
                                         "optimizer-00001-of-00002.safetensors"};

nlohmann::json state_fields() {
  FileDigests digests;
  for (const std::string& name : kFiles) {
    digests[name] = {.size_bytes = 2, .sha256 = "abc"};
  }
  return nlohmann::json::parse(print_checkpoint_record(kRecord, digests));
}

TEST(checkpoint_record, is_read_as_it_was_written) {
  const auto parsed = parse_checkpoint_record(signed_checkpoint_record(state_fields()));
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->record.step, 5);
  EXPECT_EQ(parsed->record.samples, 20);
  EXPECT_EQ(parsed->record.batch_number, 5);
  EXPECT_EQ(parsed->record.optimizer_updates, 4);
}

TEST(checkpoint_record, refuses_numbers_that_no_run_writes) {
  struct Case {
    const char* place;
    nlohmann::json number;
  };
  const nlohmann::json largest = 500'000'000'000'000'000;
  for (const Case& wrong : std::initializer_list<Case>{{"/step", -5},
                                                       {"/step", 5.0},
                                                       {"/step", 1e49},
                                                       {"/step", "5"},
                                                       {"/step", nullptr},
                                                       {"/step", 6},
                                                       {"/step", UINT64_MAX},
                                                       {"/batch_number", 4},
                                                       {"/batch_number", -1},
                                                       {"/batch_number", 2.7},
                                                       {"/batch_number", largest},
                                                       {"/samples", -1},
                                                       {"/samples", 1e49},
                                                       {"/optimizer_updates", -1},
                                                       {"/optimizer_updates", 6},
                                                       {"/optimizer_updates", 4.5},
                                                       {"/files/unet~1config.json/size_bytes", -1},
                                                       {"/files/unet~1config.json/size_bytes", 2.5},
                                                       {"/files/unet~1config.json/size_bytes", INT64_MAX}}) {
    nlohmann::json state = state_fields();
    state.at(nlohmann::json::json_pointer(wrong.place)) = wrong.number;
    EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData)
        << wrong.place << wrong.number;
  }
  nlohmann::json late = state_fields();
  late["step"] = late["batch_number"] = largest;
  EXPECT_THAT(parse_checkpoint_record(signed_checkpoint_record(late)).status().message(), HasSubstr("step must be 0 to 274877906944"));
}

TEST(checkpoint_record, sizes_of_its_files_can_be_added_up) {
  nlohmann::json state = state_fields();
  for (const char* name : {"a", "b", "c"}) {
    state["files"][name] = {{"size_bytes", int64_t{1} << 52}, {"sha256", "abc"}};
  }
  EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData);
}

TEST(checkpoint_record, refuses_files_outside_its_folder) {
  for (const char* name : {"", ".", "..", "../x", "/dev/zero", "../../../dev/zero", "unet/../../x", "unet//x", "./x", "unet/"}) {
    nlohmann::json state = state_fields();
    state["files"][name] = {{"size_bytes", 2}, {"sha256", "abc"}};
    EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData) << name;
  }
  nlohmann::json state = state_fields();
  state["files"]["unet/notes/..x"] = {{"size_bytes", 2}, {"sha256", "abc"}};
  EXPECT_TRUE(parse_checkpoint_record(signed_checkpoint_record(state)).is_ok());
}

TEST(checkpoint_record, has_all_files_that_are_read) {
  for (const std::string& name : kFiles) {
    nlohmann::json state = state_fields();
    state["files"].erase(name);
    const Status refused = parse_checkpoint_record(signed_checkpoint_record(state)).status();
    EXPECT_EQ(refused.code(), StatusCode::kCorruptData) << name;
  }
  nlohmann::json state = state_fields();
  state["files"]["optimizer-x.safetensors"] = {{"size_bytes", 2}, {"sha256", "abc"}};
  EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData);
  state = state_fields();
  state["component"] = "../elsewhere";
  EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData);
}

TEST(checkpoint_record, refuses_a_format_version_of_any_kind_but_its_own) {
  nlohmann::json state = state_fields();
  state["format_version"] = 2;
  EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kFailedPrecondition);
  for (const nlohmann::json& version : std::initializer_list<nlohmann::json>{"1", 1.0, 1.5, 1e49, nullptr, nlohmann::json::array()}) {
    state["format_version"] = version;
    EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData) << version;
  }
  state.erase("format_version");
  EXPECT_EQ(parse_checkpoint_record(signed_checkpoint_record(state)).status().code(), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace darkroom
