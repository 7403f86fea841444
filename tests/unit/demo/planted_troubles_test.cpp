#include "demo/planted_troubles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  download.rows_by_error = {{"http_404", 1}, {"timeout", 1}, {"truncated", 1}};
  const Status status = check_download(*PlantedTroubles::parse(kExpected), download, 2);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("http_404 2 1, timeout 0 1"));
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

TEST(PlantedTroubles, refuses_what_is_not_the_corpus_tools_file) {
  for (const char* text : {"", "[]", "{}", R"({"rows": "many"})"}) {
    EXPECT_EQ(PlantedTroubles::parse(text).status().code(), StatusCode::kCorruptData) << text;
  }
}

}  // namespace
}  // namespace darkroom
