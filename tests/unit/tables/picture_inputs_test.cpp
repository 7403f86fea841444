#include "darkroom/tables/picture_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What is found in a folder d of files of these names; an index.json has the text that `small` holds.
Result<std::vector<std::string>> found_in(const std::vector<std::string>& names, const std::map<std::string, std::string>& small = {}) {
  std::vector<FileInfo> files;
  for (const std::string& name : names) {
    files.push_back({.path = "d/" + name, .size_bytes = 1});
  }
  const auto read_small = [&](const std::string& path) -> Result<std::string> {
    const auto found = small.find(path.substr(2));
    return found == small.end() ? Result<std::string>(Status::unavailable("not read:", path)) : found->second;
  };
  DARKROOM_ASSIGN_OR_RETURN(const auto inputs, find_picture_inputs("d", files, read_small));
  std::vector<std::string> paths;
  for (const FileInfo& input : inputs) {
    paths.push_back(input.path);
  }
  return paths;
}

std::vector<std::string> inputs_of(const std::vector<std::string>& names) {
  const auto found = found_in(names);
  EXPECT_TRUE(found.is_ok()) << found.status().to_string();
  return found.is_ok() ? *found : std::vector<std::string>();
}

TEST(PictureInputs, the_kind_is_told_by_the_name) {
  for (const auto& [name, kind] : {std::pair("a/b.PARQUET", ContainerKind::kTable),
                                   {"a.tar", ContainerKind::kTar},
                                   {"a.TAR", ContainerKind::kTar},
                                   {"a.tar.gz", ContainerKind::kTar},
                                   {"a.TGZ", ContainerKind::kTar},
                                   {"a.tar.zst", ContainerKind::kTar},
                                   {"a.tar.idx", ContainerKind::kOther},
                                   {"shard.00000.mds", ContainerKind::kMds},
                                   {"x.mds.zstd", ContainerKind::kMds},
                                   {"x.mds.br", ContainerKind::kMds},
                                   {"x.mds.txt", ContainerKind::kOther},
                                   {"a/index.json", ContainerKind::kMdsIndex},
                                   {"a/metadata.csv", ContainerKind::kMetadata},
                                   {"my_metadata.csv", ContainerKind::kTable},
                                   {"x.JPeG", ContainerKind::kPicture},
                                   {"jpg", ContainerKind::kOther},
                                   {"a.jpg/x", ContainerKind::kOther},
                                   {"x.txt", ContainerKind::kOther},
                                   {"", ContainerKind::kOther}}) {
    EXPECT_EQ(container_kind(name), kind) << name;
  }
}

TEST(PictureInputs, one_kind_in_a_folder_is_its_dataset) {
  EXPECT_THAT(inputs_of({"b.parquet", "a/c.parquet", "README.md"}), ElementsAre("d/a/c.parquet", "d/b.parquet"));
  EXPECT_THAT(inputs_of({"1.tar", "0.tar", "notes.txt"}), ElementsAre("d/0.tar", "d/1.tar"));
  EXPECT_THAT(inputs_of({"x/a.jpg", "b.png", "b.txt"}), ElementsAre("d/"));
  EXPECT_THAT(inputs_of({"shard.00001.mds", "shard.00000.mds"}), ElementsAre("d/shard.00000.mds", "d/shard.00001.mds"));
  EXPECT_THAT(inputs_of({"README.md"}), IsEmpty());
  EXPECT_THAT(inputs_of({}), IsEmpty());
}

TEST(PictureInputs, a_compressed_tar_beside_plain_ones_is_not_passed_over) {
  EXPECT_THAT(inputs_of({"00000.tar", "00001.tar.gz", "00001.parquet", "00001_stats.json"}), ElementsAre("d/00000.tar", "d/00001.tar.gz"));
}

TEST(PictureInputs, what_img2dataset_writes_beside_its_pictures_does_not_count) {
  EXPECT_THAT(inputs_of({"00000.tar", "00000.parquet", "00000_stats.json"}), ElementsAre("d/00000.tar"));
  EXPECT_THAT(inputs_of({"00000/000000000.jpg", "00000/000000000.json", "00000/000000000.txt", "00000.parquet", "00000_stats.json"}),
              ElementsAre("d/"));
}

TEST(PictureInputs, a_metadata_file_with_pictures_makes_its_folder_an_imagefolder) {
  EXPECT_THAT(inputs_of({"metadata.jsonl", "x/a.jpg"}), ElementsAre("d/"));
  EXPECT_THAT(inputs_of({"train/metadata.csv", "train/a.jpg", "test/metadata.jsonl", "test/deep/a.jpg"}),
              ElementsAre("d/test/", "d/train/"));
  EXPECT_THAT(inputs_of({"metadata.jsonl", "more.csv"}), ElementsAre("d/metadata.jsonl", "d/more.csv"));
}

TEST(PictureInputs, two_kinds_are_refused_by_a_name_of_each) {
  for (const auto& [one, other] : {std::pair("a.parquet", "b.tar"),
                                   {"a.parquet", "b.jpg"},
                                   {"a.csv", "b.mds"},
                                   {"a.tar", "b.mds"},
                                   {"a.tar", "b.jpg"},
                                   {"a.mds", "b.jpg"}}) {
    const Status status = found_in({other, one}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(std::string("d/") + one), HasSubstr(std::string("d/")), HasSubstr("pattern")))
        << one << other;
  }
  const Status outside = found_in({"train/metadata.jsonl", "train/a.jpg", "other/b.jpg"}).status();
  EXPECT_THAT(outside.message(), AllOf(HasSubstr("d/train/"), HasSubstr("d/other/b.jpg")));
}

TEST(PictureInputs, an_index_says_which_shards_there_are) {
  const std::string index = R"({"shards": [{"raw_data": {"basename": "a.mds"}, "zip_data": null},
                                           {"raw_data": {"basename": "b.mds"}, "zip_data": {"basename": "b.mds.zstd"}}]})";
  const auto found = found_in({"index.json", "a.mds", "b.mds.zstd", "left.over.mds"}, {{"index.json", index}});
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_THAT(*found, ElementsAre("d/a.mds", "d/b.mds.zstd"));
  EXPECT_THAT(*found_in({"index.json", "a.mds", "b.mds", "b.mds.zstd"}, {{"index.json", index}}), ElementsAre("d/a.mds", "d/b.mds"));
  EXPECT_THAT(*found_in({"a.mds", "b.mds", "b.mds.zstd"}), ElementsAre("d/a.mds", "d/b.mds"));
  const Status missing = found_in({"index.json", "a.mds"}, {{"index.json", index}}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("d/index.json"), HasSubstr("b.mds.zstd")));
}

TEST(PictureInputs, an_index_says_nothing_about_the_parts_of_a_job) {
  const std::string index = R"({"shards": [{"raw_data": {"basename": "part-000000.mds"}, "zip_data": null},
                                           {"raw_data": {"basename": "part-000002-r00300.mds"}, "zip_data": null}]})";
  EXPECT_THAT(*found_in({"index.json", "part-000000.mds", "part-000001.mds", "part-000002.mds"}, {{"index.json", index}}),
              ElementsAre("d/part-000000.mds", "d/part-000001.mds", "d/part-000002.mds"))
      << "one of them has no samples, one is newer than the index";
  EXPECT_THAT(*found_in({"index.json", "part-000001.mds"}, {{"index.json", R"({"shards": []})"}}), ElementsAre("d/part-000001.mds"));
}

TEST(PictureInputs, an_index_that_is_none_is_damage) {
  for (const char* text : {"", "[]", "{}", "{\"shards\": 3}", "{\"shards\": [3]}", "{\"shards\": [{\"raw_data\": {\"basename\": 3}}]}"}) {
    const Status status = found_in({"index.json", "a.mds"}, {{"index.json", text}}).status();
    EXPECT_TRUE(status.code() == StatusCode::kCorruptData || status.code() == StatusCode::kNotFound) << text << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("d/index.json")) << text;
  }
  EXPECT_EQ(found_in({"index.json", "a.mds"}).status().code(), StatusCode::kUnavailable);
}

TEST(PictureInputs, files_that_are_named_are_taken_as_they_are) {
  const auto named =
      named_picture_inputs({{.path = "x/b.tar"}, {.path = "x/a.parquet"}, {.path = "y/metadata.jsonl"}, {.path = "y/metadata.csv"}});
  ASSERT_TRUE(named.is_ok());
  std::vector<std::string> paths;
  for (const FileInfo& input : *named) {
    paths.push_back(input.path);
  }
  EXPECT_THAT(paths, ElementsAre("x/a.parquet", "x/b.tar", "y/"));
  EXPECT_THAT(named_picture_inputs({{.path = "x/a.jpg"}}).status().message(), HasSubstr("x/a.jpg"));
}

}  // namespace
}  // namespace darkroom
