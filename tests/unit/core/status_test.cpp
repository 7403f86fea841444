#include "darkroom/core/status.h"
#include "darkroom/core/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace darkroom {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) {
    return Status::invalid_argument("an odd number has no half (value):", value);
  }
  return value / 2;
}

Result<int> quarter(int value) {
  DARKROOM_ASSIGN_OR_RETURN(const int first, half(value));
  DARKROOM_ASSIGN_OR_RETURN(const int second, half(first));
  return second;
}

TEST(Status, puts_values_behind_the_message) {
  const Status status = Status::corrupt_data("row count differs (path, want, got):", "a.parquet", 10, 9);
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_EQ(status.message(), "row count differs (path, want, got): a.parquet 10 9");
  EXPECT_EQ(status.to_string(), "corrupt_data: row count differs (path, want, got): a.parquet 10 9");
}

TEST(Status, context_goes_in_front_and_leaves_ok_alone) {
  EXPECT_EQ(Status::not_found("no column:", "url").with_context("x.csv").message(), "x.csv: no column: url");
  EXPECT_TRUE(Status::ok().with_context("x").is_ok());
  EXPECT_EQ(Status::ok().message(), "");
}

TEST(Result, carries_the_value_or_the_first_failure) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().message(), "an odd number has no half (value): 3");
}

TEST(Result, value_of_a_failure_is_a_broken_invariant) { EXPECT_THROW((void)half(1).value(), CheckFailure); }

TEST(Result, holds_what_can_only_be_moved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(4));
  std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 4);
}

TEST(Check, names_file_condition_and_values) {
  try {
    DARKROOM_CHECK(1 > 2, "order (a, b):", 1, 2);
    FAIL() << "did not throw";
  } catch (const CheckFailure& failure) {
    EXPECT_NE(std::string(failure.what()).find("status_test.cpp"), std::string::npos);
    EXPECT_NE(std::string(failure.what()).find("1 > 2: order (a, b): 1 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace darkroom
