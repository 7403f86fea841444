#include "darkroom/tables/part_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PartName, text_and_parse_are_inverse) {
  const std::vector<std::pair<PartName, std::string>> names = {
      {{.item = 0}, "part-000000.parquet"},
      {{.item = 42}, "part-000042.parquet"},
      {{.item = 1'234'567}, "part-1234567.parquet"},
      {{.item = 42, .generation = 1}, "part-000042-g1.parquet"},
      {{.item = 42, .generation = 12}, "part-000042-g12.parquet"},
      {{.item = 42, .considered = 300}, "part-000042-r00300.parquet"},
      {{.item = 42, .considered = 0}, "part-000042-r00000.parquet"},
      {{.item = 42, .considered = 1'234'567}, "part-000042-r1234567.parquet"},
      {{.item = 42, .generation = 2, .considered = 3}, "part-000042-g2-r00003.parquet"},
      {{.item = INT64_MAX}, "part-9223372036854775807.parquet"},
      {{.item = 42, .container = PartContainer::kTar}, "part-000042.tar"},
      {{.item = 42, .considered = 300, .container = PartContainer::kMds}, "part-000042-r00300.mds"},
  };
  for (const auto& [part, text] : names) {
    EXPECT_EQ(part.text(), text);
    EXPECT_EQ(PartName::parse(text), part) << text;
  }
}

TEST(PartName, what_another_program_calls_a_part_is_none) {
  for (const char* name : {"",
                           "part-",
                           "part-.parquet",
                           "part-00042.parquet",
                           "part-0000042.parquet",
                           "part--00042.parquet",
                           "part-000042",
                           "part-000042.parquet.tmp",
                           "part-000042.csv",
                           "part-000042.tar.parquet",
                           "part-000042tar",
                           "part-000042.mds.zstd",
                           "Part-000042.parquet",
                           "part-000042-g.parquet",
                           "part-000042-g0.parquet",
                           "part-000042-g01.parquet",
                           "part-000042-g-1.parquet",
                           "part-000042-r300.parquet",
                           "part-000042-r.parquet",
                           "part-000042-r-0300.parquet",
                           "part-000042-r00300-g1.parquet",
                           "part-+00042.parquet",
                           "part- 000042.parquet",
                           "part-9223372036854775808.parquet",
                           "part-000042-r00300.parquet ",
                           "part-00000-4f9a2c1e-c000.snappy.parquet",
                           "_tmp/part-000042.parquet"}) {
    EXPECT_FALSE(PartName::parse(name).has_value()) << name;
  }
}

std::vector<FileInfo> files_of(const std::vector<std::string>& paths) {
  std::vector<FileInfo> files;
  for (const std::string& path : paths) {
    files.push_back({.path = path, .size_bytes = 1});
  }
  return files;
}

std::vector<std::string> paths_of(const std::vector<FileInfo>& files) {
  std::vector<std::string> paths;
  for (const FileInfo& file : files) {
    paths.push_back(file.path);
  }
  return paths;
}

TEST(PartName, readers_take_one_part_an_item) {
  auto listing = files_of({"d/a.parquet", "d/part-000000-r00003.parquet", "d/part-000000-r00010.parquet", "d/part-000001-g1.parquet",
                           "d/part-000001-g10.parquet", "d/part-000001-g9.parquet", "d/part-000001.parquet",
                           "d/part-000002-g3-r00009.parquet", "d/part-000002.parquet", "d/part-000003.parquet"});
  const auto left_out = take_out_superseded_parts(listing);
  EXPECT_THAT(paths_of(listing), ElementsAre("d/a.parquet", "d/part-000000-r00010.parquet", "d/part-000001-g10.parquet",
                                             "d/part-000002.parquet", "d/part-000003.parquet"));
  EXPECT_THAT(paths_of(left_out), ElementsAre("d/part-000000-r00003.parquet", "d/part-000001-g1.parquet", "d/part-000001-g9.parquet",
                                              "d/part-000001.parquet", "d/part-000002-g3-r00009.parquet"));
}

TEST(PartName, parts_of_another_container_are_other_parts) {
  auto listing = files_of({"d/part-000000-r00003.mds", "d/part-000000.mds", "d/part-000000.parquet", "d/part-000000.tar"});
  EXPECT_THAT(paths_of(take_out_superseded_parts(listing)), ElementsAre("d/part-000000-r00003.mds"));
}

TEST(PartName, parts_of_other_folders_are_other_parts) {
  auto listing = files_of({"a/part-000000-r00003.parquet", "b/part-000000.parquet"});
  EXPECT_THAT(take_out_superseded_parts(listing), IsEmpty());
  EXPECT_EQ(listing.size(), 2u);
}

}  // namespace
}  // namespace darkroom
