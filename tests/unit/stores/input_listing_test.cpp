#include "darkroom/stores/input_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/files/memory_files.h"
#include "support/forwarding_files.h"
#include "support/temporary_folder.h"

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

TEST(Wildcards, names_begin_above_the_first_one) {
  for (const auto& [path, folder] : std::vector<std::pair<std::string, std::string>>{
           {"a/b", "a/b"}, {"a/b/*.parquet", "a/b"}, {"a/b*/c/d", "a"}, {"a/part-[0-4]?", "a"}, {"/*", "/"}, {"**", "."}, {"", ""}}) {
    EXPECT_EQ(folder_above_wildcards(path), folder) << path;
    EXPECT_EQ(has_wildcard(path), path != folder) << path;
  }
}

TEST_F(InputListing, what_hidden_folders_of_a_disk_hold_is_not_looked_at) {
  const TemporaryFolder folder;
  for (const char* path : {"b.parquet", "sub/c.csv", "sub.csv", ".cache/x.parquet", "_superseded/y.parquet"}) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder.path(path), "x").is_ok());
  }
  std::filesystem::create_directory_symlink(folder.path(".cache"), folder.path(".cache/loop"));
  const auto infos = list_inputs(local_files(), folder.path());
  ASSERT_TRUE(infos.is_ok()) << infos.status().to_string();
  std::vector<std::string> found;
  for (const FileInfo& info : *infos) {
    found.push_back(info.path);
  }
  EXPECT_THAT(found, ElementsAre(folder.path("b.parquet"), folder.path("sub.csv"), folder.path("sub/c.csv")));
  std::filesystem::create_directory_symlink(folder.path(), folder.path("loop"));
  EXPECT_EQ(list_inputs(local_files(), folder.path()).status().code(), StatusCode::kFailedPrecondition);
}

/// Lists a folder once without one of its files.
class TornFolder final : public ForwardingFiles {
 public:
  TornFolder(FileSystem& files, std::string hidden) : ForwardingFiles(files), hidden_(std::move(hidden)) {}
  Result<std::vector<FileInfo>> list(const std::string& folder) override {
    auto entries = ForwardingFiles::list(folder);
    if (entries.is_ok() && folder == "out" && num_lists++ == 0) {
      std::erase_if(*entries, [&](const FileInfo& entry) { return entry.path == hidden_; });
    }
    return entries;
  }
  int num_lists = 0;

 private:
  const std::string hidden_;
};

TEST_F(InputListing, an_item_whose_next_generation_came_behind_its_back_is_not_missed) {
  for (const char* path : {"out/part-000000.parquet", "out/part-000001-g1.parquet", "out/_superseded/part-000001.parquet"}) {
    ASSERT_TRUE(write_file_atomic(files_, path, "x").is_ok());
  }
  for (const std::string uri : {"out", "out/part-*.parquet", "out/**/*.parquet"}) {
    TornFolder files(files_, "out/part-000001-g1.parquet");
    const auto infos = list_inputs(files, uri);
    ASSERT_TRUE(infos.is_ok()) << infos.status().to_string();
    EXPECT_EQ(infos->size(), 2u) << uri;
    TornFolder others(files_, "out/part-000001-g1.parquet");
    EXPECT_EQ(list_image_inputs(others, uri)->size(), 2u) << uri;
  }
  // One that is gone for good stops nobody, and what a pattern leaves out is not missed.
  ASSERT_TRUE(files_.remove_file("out/part-000001-g1.parquet").is_ok());
  EXPECT_EQ(list_inputs(files_, "out")->size(), 1u);
  TornFolder files(files_, "");
  EXPECT_EQ(list_inputs(files, "out/part-000000*.parquet")->size(), 1u);
  EXPECT_EQ(files.num_lists, 1);
}

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

}  // namespace
}  // namespace darkroom
