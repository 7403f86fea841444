#include "demo/planted_troubles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace darkroom {
namespace {

using ::testing::HasSubstr;

constexpr const char* kExpected = R"({"rows": 12, "good_rows": 9, "rows_by_error": {"http_404": 2, "truncated": 1},
  "retries": {"temporary": 4, "lasting_per_retry": 1}, "redirected_rows": 1})";

StageSummary download_as_planted() {
  StageSummary download;
  download.rows_in = 12;
  download.rows_out = 9;
  download.rows_by_error = {{"http_404", 2}, {"truncated", 1}};
  download.retries = 6;
  return download;
}

TEST(PlantedTroubles, accepts_a_download_that_met_all_of_them) {
  const PlantedTroubles planted = *PlantedTroubles::parse(kExpected);
  EXPECT_EQ(planted.retries(2), 6);
  EXPECT_TRUE(check_download(planted, download_as_planted(), 2).is_ok());
}

TEST(PlantedTroubles, names_a_code_that_was_miscounted_and_one_that_was_never_planted) {
  StageSummary download = download_as_planted();
  download.rows_by_error = {{"http_403", 1}, {"http_404", 1}, {"truncated", 1}};
  const Status status = check_download(*PlantedTroubles::parse(kExpected), download, 2);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("http_403 0 1, http_404 2 1"));
}

TEST(PlantedTroubles, names_a_code_that_was_lost) {
  StageSummary download = download_as_planted();
  download.rows_by_error.erase("truncated");
  download.rows_out = 10;
  EXPECT_THAT(check_download(*PlantedTroubles::parse(kExpected), download, 2).message(), HasSubstr("rows_out 9 10, truncated 1 0"));
}

TEST(PlantedTroubles, counts_retries) {
  EXPECT_THAT(check_download(*PlantedTroubles::parse(kExpected), download_as_planted(), 3).message(), HasSubstr("retries 7 6"));
}

// A slow machine, not a lost trouble: good rows and planted ones that ran out of time lack elsewhere.
TEST(PlantedTroubles, blames_the_machine_when_rows_only_ran_out_of_time) {
  StageSummary download = download_as_planted();
  download.rows_out = 7;
  download.retries = 5;
  download.rows_by_error = {{"http_404", 1}, {"timeout", 3}, {"truncated", 1}};
  const Status status = check_download(*PlantedTroubles::parse(kExpected), download, 2);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("too slow or too busy"));
  EXPECT_THAT(status.message(), HasSubstr("rows_out 9 7, retries 6 5, http_404 2 1, timeout 0 3"));
}

TEST(PlantedTroubles, a_trouble_too_many_is_no_slow_machine) {
  StageSummary download = download_as_planted();
  download.rows_out = 7;
  download.rows_by_error = {{"http_404", 3}, {"timeout", 1}, {"truncated", 1}};
  EXPECT_EQ(check_download(*PlantedTroubles::parse(kExpected), download, 2).code(), StatusCode::kInternal);
}

TEST(PlantedTroubles, fewer_timeouts_than_planted_are_no_slow_machine) {
  constexpr const char* kWithDrip = R"({"rows": 2, "good_rows": 1, "rows_by_error": {"timeout": 1},
    "retries": {"temporary": 0, "lasting_per_retry": 0}, "redirected_rows": 0})";
  StageSummary download;
  download.rows_in = 2;
  download.rows_out = 2;
  EXPECT_EQ(check_download(*PlantedTroubles::parse(kWithDrip), download, 2).code(), StatusCode::kInternal);
}

constexpr std::chrono::seconds kDeadlines[] = {std::chrono::seconds(6), std::chrono::seconds(60)};

TEST(DownloadInTime, begins_again_with_a_later_deadline_on_a_slow_machine) {
  std::vector<int64_t> deadlines;
  const Status status = download_in_time(kDeadlines, [&](std::chrono::seconds deadline) {
    deadlines.push_back(deadline.count());
    return deadline.count() < 60 ? Status::unavailable("too slow:", deadline.count()) : Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_THAT(deadlines, ::testing::ElementsAre(6, 60));
}

TEST(DownloadInTime, ends_after_the_last_deadline_with_its_reason) {
  const Status status =
      download_in_time(kDeadlines, [](std::chrono::seconds deadline) { return Status::unavailable("too slow:", deadline.count()); });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("too slow: 60"));
}

TEST(DownloadInTime, does_not_repeat_another_failure) {
  int num_downloads = 0;
  const Status status = download_in_time(kDeadlines, [&](std::chrono::seconds) {
    ++num_downloads;
    return Status::internal("a trouble was lost");
  });
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(num_downloads, 1);
}

TEST(PlantedTroubles, refuses_what_is_not_the_corpus_tools_file) {
  for (const char* text : {"", "[]", "{}", R"({"rows": "many"})"}) {
    EXPECT_EQ(PlantedTroubles::parse(text).status().code(), StatusCode::kCorruptData) << text;
  }
}

}  // namespace
}  // namespace darkroom
