#include "darkroom/stores/input_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InputListing : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* path : {"in/b.parquet", "in/a.csv", "in/sub/c.parquet", "in/_tmp/x.parquet", "in/_job.json", "in/.hidden.parquet",
                             "in/README.md", "in/sub/deep/d.PARQUET", "other/b.parquet"}) {
      ASSERT_TRUE(write_file_atomic(files_, path, "x").is_ok());
    }
  }
  std::vector<std::string> paths(const std::string& uri) {
    const auto infos = list_inputs(files_, uri);
    std::vector<std::string> found;
    if (!infos.is_ok()) {
      return {infos.status().to_string()};
    }
    for (const FileInfo& info : *infos) {
      found.push_back(info.path);
    }
    return found;
  }

  MemoryFileSystem files_;
};

TEST_F(InputListing, a_folder_gives_its_visible_tables_at_any_depth_in_byte_order) {
  EXPECT_THAT(paths("in"), ElementsAre("in/a.csv", "in/b.parquet", "in/sub/c.parquet", "in/sub/deep/d.PARQUET"));
}

TEST_F(InputListing, a_file_is_itself_whatever_its_name) {
  EXPECT_THAT(paths("in/README.md"), ElementsAre("in/README.md"));
  EXPECT_THAT(paths("in/_job.json"), ElementsAre("in/_job.json"));
  EXPECT_THAT(paths("file:///in/b%2Eparquet"), ElementsAre("/in/b.parquet"));
}

TEST_F(InputListing, a_pattern_gives_what_fits) {
  EXPECT_THAT(paths("in/*.parquet"), ElementsAre("in/b.parquet"));
  EXPECT_THAT(paths("*/b.parquet"), ElementsAre("in/b.parquet", "other/b.parquet"));
  EXPECT_THAT(paths("in/**/[cb].parquet"), ElementsAre("in/b.parquet", "in/sub/c.parquet"));
  EXPECT_THAT(paths("in/?.csv"), ElementsAre("in/a.csv"));
  EXPECT_THAT(paths("/in/**/*"), ElementsAre("/in/README.md", "/in/a.csv", "/in/b.parquet", "/in/sub/c.parquet", "/in/sub/deep/d.PARQUET"));
}

TEST_F(InputListing, one_part_an_item_counts) {
  for (const char* name : {"part-000000-r00300.parquet", "part-000000.parquet", "part-000001-g1.parquet", "part-000001.parquet"}) {
    ASSERT_TRUE(write_file_atomic(files_, std::string("job/") + name, "x").is_ok());
  }
  EXPECT_THAT(paths("job"), ElementsAre("job/part-000000.parquet", "job/part-000001-g1.parquet"));
  EXPECT_THAT(paths("job/part-*.parquet"), ElementsAre("job/part-000000.parquet", "job/part-000001-g1.parquet"));
  EXPECT_THAT(paths("job/part-000001.parquet"), ElementsAre("job/part-000001.parquet"));
}

TEST_F(InputListing, says_what_is_missing) {
  for (const char* uri : {"none", "none/*", "in/*.tsv", "in/none.parquet"}) {
    const Status status = list_inputs(files_, uri).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << uri;
    EXPECT_THAT(status.message(), HasSubstr(uri));
  }
  ASSERT_TRUE(files_.create_folders("empty").is_ok());
  EXPECT_THAT(list_inputs(files_, "empty").status().message(), HasSubstr(".parquet"));
}

TEST(LocalPath, refuses_what_is_not_built_yet_and_what_is_malformed) {
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
