#include "darkroom/core/median.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

TEST(Median, is_the_middle_or_the_mean_of_both) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({5, 9}), 7);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({-1, 100, -1, 100, 0, 0}), 0);
}

}  // namespace
}  // namespace darkroom
