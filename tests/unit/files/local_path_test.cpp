#include "darkroom/files/local_path.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

TEST(LocalPath, refuses_other_addresses_and_what_is_malformed) {
  for (const char* uri :
       {"s3://bucket/key", "https://host/x", "hf://datasets/x", "ftp://host/x", "file://host/x", "file://x", "file:///a%2", ""}) {
    EXPECT_EQ(local_path(uri).status().code(), StatusCode::kInvalidArgument) << uri;
  }
  EXPECT_EQ(local_path("file:///a%20b").value(), "/a b");
  EXPECT_EQ(local_path("file://localhost/a").value(), "/a");
  EXPECT_EQ(local_path("relative/path").value(), "relative/path");
}

}  // namespace
}  // namespace darkroom
