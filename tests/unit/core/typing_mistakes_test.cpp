#include "darkroom/core/typing_mistakes.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

TEST(typing_mistakes, counts_letters_too_many_missing_and_wrong) {
  EXPECT_EQ(typing_mistakes("", ""), 0u);
  EXPECT_EQ(typing_mistakes("", "abc"), 3u);
  EXPECT_EQ(typing_mistakes("abc", ""), 3u);
  EXPECT_EQ(typing_mistakes("width", "width"), 0u);
  EXPECT_EQ(typing_mistakes("widht", "widths"), 2u);
  EXPECT_EQ(typing_mistakes("height", "weight"), 1u);
  EXPECT_EQ(typing_mistakes("kitten", "sitting"), 3u);
}

TEST(typing_mistakes, counts_swapped_neighbours_once) {
  EXPECT_EQ(typing_mistakes("ab", "ba"), 1u);
  EXPECT_EQ(typing_mistakes("punsafe", "pusnafe"), 1u);
  EXPECT_EQ(typing_mistakes("ca", "abc"), 3u);  // No letter twice: the unrestricted distance would be 2.
}

}  // namespace
}  // namespace darkroom
