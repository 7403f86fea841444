#include "darkroom/files/paths.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

TEST(Paths, joins_with_exactly_one_slash) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("/", "b"), "/b");
  EXPECT_EQ(join_path("", "b"), "b");
}

TEST(Paths, splits_folder_and_name) {
  EXPECT_EQ(parent_folder("a/b/c"), "a/b");
  EXPECT_EQ(parent_folder("a/b/"), "a");
  EXPECT_EQ(parent_folder("a"), ".");
  EXPECT_EQ(parent_folder("/a"), "/");
  EXPECT_EQ(parent_folder("/"), "/");
  EXPECT_EQ(parent_folder("a//b"), "a");
  EXPECT_EQ(file_name("a/b.txt"), "b.txt");
  EXPECT_EQ(file_name("a/b/"), "b");
  EXPECT_EQ(file_name("a"), "a");
}

TEST(Paths, loses_the_slashes_at_its_end_but_not_the_root) {
  EXPECT_EQ(without_trailing_slashes("a/b//"), "a/b");
  EXPECT_EQ(without_trailing_slashes("/a"), "/a");
  EXPECT_EQ(without_trailing_slashes("///"), "/");
  EXPECT_EQ(without_trailing_slashes(""), "");
}

}  // namespace
}  // namespace darkroom
