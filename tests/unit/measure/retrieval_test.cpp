#include "darkroom/measure/retrieval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;

TEST(Retrieval, reduces_to_the_sums_of_two_by_two_pixels) {
  Image picture = Image::filled(4, 2, 3);
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    picture.pixels[i] = static_cast<uint8_t>(i);
  }
  // Red of the first four pixels: 0, 3, 12, 15; each further channel adds 4, each further block 24.
  EXPECT_THAT(reduce_picture(picture), ElementsAre(30, 34, 38, 54, 58, 62));
}

TEST(Retrieval, holds_the_sum_of_four_white_pixels) { EXPECT_THAT(reduce_picture(Image::filled(2, 2, 1, 255)), ElementsAre(1020)); }

TEST(Retrieval, refuses_odd_sizes) { EXPECT_THROW(reduce_picture(Image::filled(3, 2, 3)), CheckFailure); }

TEST(Retrieval, distance_is_exact_where_32_bits_would_overflow) {
  const ReducedPicture black(3072, 0);
  const ReducedPicture white(3072, 1020);
  EXPECT_EQ(squared_distance(black, white), int64_t{3072} * 1020 * 1020);
}

TEST(Retrieval, rank_counts_the_pictures_that_are_strictly_nearer) {
  const std::vector<ReducedPicture> corpus = {{0}, {10}, {20}, {30}};
  EXPECT_EQ(rank_of_own({21}, 2, corpus), 0);
  EXPECT_EQ(rank_of_own({21}, 3, corpus), 1);
  EXPECT_EQ(rank_of_own({21}, 0, corpus), 3);
}

TEST(Retrieval, equal_pictures_under_two_captions_count_as_one) {
  const std::vector<ReducedPicture> corpus = {{10}, {10}, {50}};
  EXPECT_EQ(rank_of_own({12}, 0, corpus), 0);
  EXPECT_EQ(rank_of_own({12}, 1, corpus), 0);
}

TEST(Retrieval, share_counts_ranks_below_the_limit) {
  const std::vector<int64_t> ranks = {0, 1, 4, 5};
  EXPECT_DOUBLE_EQ(share_within(ranks, 1), 0.25);
  EXPECT_DOUBLE_EQ(share_within(ranks, 5), 0.75);
  EXPECT_DOUBLE_EQ(share_within({}, 5), 0.0);
}

TEST(Retrieval, draws_different_rows_and_always_the_same_ones) {
  const auto rows = draw_rows(1, "demo/shipped", 1870, 200);
  EXPECT_EQ(rows, draw_rows(1, "demo/shipped", 1870, 200));
  EXPECT_NE(rows, draw_rows(2, "demo/shipped", 1870, 200));
  EXPECT_EQ(std::set<size_t>(rows.begin(), rows.end()).size(), 200U);
  EXPECT_LT(*std::max_element(rows.begin(), rows.end()), 1870U);
}

TEST(Retrieval, draws_all_rows_and_none) {
  EXPECT_EQ(draw_rows(1, "x", 7, 7).size(), 7U);
  EXPECT_TRUE(draw_rows(1, "x", 7, 0).empty());
  EXPECT_THROW(draw_rows(1, "x", 7, 8), CheckFailure);
}

}  // namespace
}  // namespace darkroom
