#include "ingest/repeat_finder.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace darkroom {
namespace {

TEST(RowSet, holds_what_was_added) {
  for (const int64_t num_rows : {0, 1, 63, 64, 65, 1000}) {
    RowSet rows(num_rows);
    std::set<int64_t> wanted;
    for (int64_t row = 0; row < num_rows; row += 7) {
      rows.add(row);
      wanted.insert(row);
    }
    for (int64_t row = 0; row < num_rows + 200; ++row) {
      EXPECT_EQ(rows.contains(row), wanted.contains(row)) << row << " of " << num_rows;
    }
    EXPECT_EQ(rows.size(), static_cast<int64_t>(wanted.size()));
  }
  EXPECT_FALSE(RowSet().contains(0));
}

/// The places of values that came before, found in as many passes as the memory asks for.
std::vector<size_t> repeats(const std::vector<std::string>& values, int64_t memory_bytes, int64_t& num_passes) {
  RepeatFinder finder(static_cast<int64_t>(values.size()), memory_bytes);
  num_passes = finder.num_passes();
  std::set<size_t> found;
  for (int64_t pass = 0; pass < num_passes; ++pass) {
    finder.begin_pass(pass);
    for (size_t i = 0; i < values.size(); ++i) {
      if (finder.is_repeated(values[i])) {
        EXPECT_TRUE(found.insert(i).second) << "found in two passes";
      }
    }
  }
  return {found.begin(), found.end()};
}

TEST(RepeatFinder, finds_every_value_that_came_before_whatever_the_memory) {
  std::mt19937 random(7);
  std::vector<std::string> values;
  std::vector<size_t> wanted;
  std::set<std::string> seen;
  for (size_t i = 0; i < 20'000; ++i) {
    values.push_back("value " + std::to_string(random() % 15'000));
    if (!seen.insert(values.back()).second) {
      wanted.push_back(i);
    }
  }
  int64_t num_passes = 0;
  EXPECT_EQ(repeats(values, int64_t{1} << 30, num_passes), wanted);
  EXPECT_EQ(num_passes, 1);
  EXPECT_EQ(repeats(values, 200'000, num_passes), wanted);
  EXPECT_EQ(num_passes, 7);
  EXPECT_EQ(repeats(values, 1, num_passes), wanted);
  EXPECT_GT(num_passes, 30);
}

TEST(RepeatFinder, no_value_and_one_value_many_times) {
  int64_t num_passes = 0;
  EXPECT_TRUE(repeats({}, 100, num_passes).empty());
  EXPECT_EQ(num_passes, 1);
  EXPECT_EQ(repeats(std::vector<std::string>(5000, ""), 1, num_passes).size(), 4999u);
}

}  // namespace
}  // namespace darkroom
