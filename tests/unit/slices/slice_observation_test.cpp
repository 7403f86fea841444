#include "darkroom/slices/slice_observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "slice_talk.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

TEST(slice_observation, counts_what_was_made_and_leaves_out_what_failed) {
  MetricsRegistry metrics;
  bool is_good = true;
  const SliceMaker make = observe_slices(
      [&](int, std::span<const int64_t>) {
        return is_good ? Result<std::string>("12345") : Status::unavailable("the store is away:", "s3");
      },
      2, {.stage = "encode", .metrics = &metrics});
  EXPECT_EQ(make(1, std::vector<int64_t>{4, 5, 6}).value(), "12345");
  EXPECT_EQ(make(0, std::vector<int64_t>{7}).value(), "12345");
  is_good = false;
  EXPECT_EQ(make(1, std::vector<int64_t>{8, 9}).status().code(), StatusCode::kUnavailable);
  const std::string page = metrics.to_prometheus();
  EXPECT_THAT(page, HasSubstr("darkroom_rows_total{stage=\"encode\"} 4\n"));
  EXPECT_THAT(page, HasSubstr("darkroom_bytes_total{stage=\"encode\"} 10\n"));
  for (const char* state : {"busy", "starved"}) {
    const auto& spent = metrics.seconds_counter("darkroom_stage_seconds_total", "Time of a stage's workers, by what they did.",
                                                {{"stage", "encode"}, {"state", state}});
    EXPECT_GT(spent.value().count(), 0) << state;
  }
}

TEST(slice_observation, tells_each_slice_as_a_span_and_marks_what_failed) {
  const TemporaryFolder folder;
  const auto trace = TraceRecorder::open({.path = folder.path("spans.jsonl")});
  ASSERT_TRUE(trace.is_ok()) << trace.status().to_string();
  const SliceMaker make = observe_slices(
      [](int, std::span<const int64_t> rows) {
        return rows.front() == 3 ? Result<std::string>(Status::unavailable("the store is away:", "s3")) : Result<std::string>("made");
      },
      1, {.stage = "transform", .trace = trace->get()});
  EXPECT_TRUE(make(0, std::vector<int64_t>{1, 2}).is_ok());
  EXPECT_FALSE(make(0, std::vector<int64_t>{3}).is_ok());
  ASSERT_TRUE((*trace)->finish().is_ok());
  std::vector<std::string> told;
  std::ifstream file(folder.path("spans.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json request = nlohmann::json::parse(line);
    for (const nlohmann::json& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
      told.push_back(span["name"].get<std::string>() + (span.contains("status") ? " failed" : ""));
      for (const nlohmann::json& attribute : span["attributes"]) {
        if (const std::string key = attribute["key"]; key.starts_with("darkroom.")) {
          told.back() += " " + key + "=" + attribute["value"]["intValue"].get<std::string>();
        }
      }
    }
  }
  EXPECT_EQ(told,
            (std::vector<std::string>{"transform darkroom.row=1 darkroom.rows=2", "transform failed darkroom.row=3 darkroom.rows=1"}));
}

TEST(slice_observation, is_the_maker_itself_where_nobody_looks) {
  const SliceMaker make = observe_slices(rows_as_text, 1, {.stage = "encode"});
  EXPECT_EQ(make(0, std::vector<int64_t>{7, 8}).value(), "7,8;");
}

}  // namespace
}  // namespace darkroom
