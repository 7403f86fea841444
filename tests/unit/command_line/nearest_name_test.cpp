#include "nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace darkroom {
namespace {

TEST(NearestName, finds_typing_mistakes) {
  const std::vector<std::string> verbs = {"download", "process", "train", "sample"};
  EXPECT_EQ(nearest_name("downlaod", verbs), "download");
  EXPECT_EQ(nearest_name("proces", verbs), "process");
  EXPECT_EQ(nearest_name("trian", verbs), "train");
  const std::vector<std::string> flags = {"--prompt", "--prompts-file", "--negative"};
  EXPECT_EQ(nearest_name("--promt", flags), "--prompt");
  EXPECT_EQ(nearest_name("--negative-prompt", flags), "--negative");
}

TEST(NearestName, suggests_nothing_that_is_far) {
  const std::vector<std::string> verbs = {"download", "train"};
  for (const char* name : {"", "x", "frobnicate", "upload-everything"}) {
    EXPECT_EQ(nearest_name(name, verbs), "") << name;
  }
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'd'), verbs), "");
  EXPECT_EQ(suggestion("trane", verbs), "; did you mean train?");
  EXPECT_EQ(suggestion("zzz", verbs), "");
}

}  // namespace
}  // namespace darkroom
