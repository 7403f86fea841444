#include "darkroom/feed/dataset_index.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/tables/tensor_forms.h"
#include "small_datasets.h"
#include "support/fake_s3_stores.h"
#include "support/image_containers.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

TEST(dataset_index, cuts_parts_into_blocks_of_at_most_256_rows) {
  const DatasetIndex index({{"a", "1", 0, 600}, {"b", "2", 0, 0}, {"c", "3", 0, 256}, {"c", "3", 256, 1}});
  EXPECT_EQ(index.num_rows(), 857);
  EXPECT_EQ(index.block_rows(), (std::vector<int32_t>{256, 256, 88, 256, 1}));
}

TEST(dataset_index, finds_the_place_of_every_row) {
  const DatasetIndex index({{"a", "1", 0, 3}, {"b", "2", 0, 0}, {"c", "3", 0, 2}, {"c", "3", 2, 2}});
  const std::vector<std::pair<size_t, int64_t>> want = {{0, 0}, {0, 1}, {0, 2}, {2, 0}, {2, 1}, {3, 2}, {3, 3}};
  for (size_t row = 0; row < want.size(); ++row) {
    const RowPlace place = index.place_of(static_cast<int64_t>(row));
    EXPECT_EQ(std::pair(place.part, place.row), want[row]) << row;
  }
  EXPECT_THROW(index.place_of(7), CheckFailure);
}

TEST(dataset_index, json_gives_the_same_index_back) {
  const DatasetIndex index({{"a/\"b\".parquet", "1", 0, 3}, {"c", "footer:2", 5, 4}});
  const auto back = DatasetIndex::from_json(index.to_json());
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(back->parts(), index.parts());
  EXPECT_EQ(back->hash(), index.hash());
}

TEST(dataset_index, refuses_damaged_json) {
  EXPECT_EQ(DatasetIndex::from_json("{").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(DatasetIndex::from_json("[]").status().code(), StatusCode::kCorruptData);
  for (const char* text : {R"({"format_version":"1"})", R"({"format_version":[],"rows_per_block":256,"parts":[]})",
                           R"({"format_version":1,"rows_per_block":"256","parts":[]})"}) {
    EXPECT_EQ(DatasetIndex::from_json(text).status().code(), StatusCode::kCorruptData) << text;
  }
  EXPECT_EQ(DatasetIndex::from_json(R"({"format_version":2,"rows_per_block":256,"parts":[]})").status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(DatasetIndex::from_json(R"({"format_version":1,"rows_per_block":256,"parts":[{}]})").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(DatasetIndex::from_json(
                R"({"format_version":1,"rows_per_block":256,"parts":[{"name":"a","content_hash":"","first_row":0,"num_rows":-1}]})")
                .status()
                .code(),
            StatusCode::kCorruptData);
}

TEST(dataset_index, follows_the_content_and_not_the_place_of_a_dataset) {
  TemporaryFolder folder;
  write_small_latents(folder.path("one"), "part-000000.parquet", {.num_rows = 5});
  write_small_latents(folder.path("one"), "part-000001.parquet", {.first = 5, .num_rows = 7});
  const auto index = DatasetIndex::of_latents(*find_local_dataset(folder.path("one")));
  ASSERT_TRUE(index.is_ok()) << index.status().to_string();
  EXPECT_EQ(index->num_rows(), 12);
  std::filesystem::rename(folder.path("one"), folder.path("moved"));
  EXPECT_EQ(DatasetIndex::of_latents(*find_local_dataset(folder.path("moved") + "/"))->hash(), index->hash());
  write_small_latents(folder.path("moved"), "part-000002.parquet", {.num_rows = 1});
  EXPECT_NE(DatasetIndex::of_latents(*find_local_dataset(folder.path("moved")))->hash(), index->hash());
}

TEST(dataset_index, tells_every_record_and_the_largest_row_group_of_all_shards) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const SmallLatents& rows) { write_small_latents(folder.path("d"), name, rows); };
  write("a.parquet", {.num_rows = 300, .footer = {{kLatentsFooterKey, "one"}}});
  write("b.parquet", {.num_rows = 300, .footer = {{kLatentsFooterKey, "two"}}, .row_group_bytes = 1 << 20});
  write("c.parquet", {.num_rows = 1, .footer = {{kLatentsFooterKey, "one"}}});
  write("d.parquet", {.num_rows = 1});
  const auto indexed = index_latents(*find_local_dataset(folder.path("d")));
  ASSERT_TRUE(indexed.is_ok()) << indexed.status().to_string();
  EXPECT_EQ(indexed->index.num_rows(), 602);
  EXPECT_EQ(indexed->row_groups.largest, 300);
  EXPECT_EQ(indexed->row_groups.rows_in_large, 300);
  ASSERT_EQ(indexed->records.size(), 2U);
  EXPECT_EQ(indexed->records[0].text, "one");
  EXPECT_EQ(indexed->records[1].shard.path, folder.path("d") + "/b.parquet");
  const auto images = index_images(*find_local_dataset(folder.path("d")), 100);
  ASSERT_TRUE(images.is_ok()) << images.status().to_string();
  EXPECT_EQ(images->row_groups.largest, 300);
  EXPECT_GE(images->mean_row_bytes, 20) << "of 10 numbers of two bytes";
  EXPECT_LT(images->mean_row_bytes, 100);
}

TEST(dataset_index, parts_of_images_are_the_work_items_of_process) {
  TemporaryFolder folder;
  write_small_latents(folder.path("d"), "a.parquet", {.num_rows = 25});
  write_small_latents(folder.path("d"), "b.parquet", {.num_rows = 10});
  const auto index = DatasetIndex::of_images(*find_local_dataset(folder.path("d")), 10);
  ASSERT_TRUE(index.is_ok()) << index.status().to_string();
  EXPECT_EQ(index->block_rows(), (std::vector<int32_t>{10, 10, 5, 10}));
  EXPECT_EQ(find_local_dataset(folder.path("d"))->place_of(index->parts()[3].name).path, folder.path("d") + "/b.parquet");
}

TEST(dataset_index, a_folder_of_mds_shards_is_its_shards_and_not_its_index) {
  TemporaryFolder folder;
  write_mds(local_files(), folder.path("mds"), {{"0", "a house", "picture"}, {"1", "a tree", "picture"}});
  const auto local = find_local_dataset(folder.path("mds"));
  ASSERT_TRUE(local.is_ok()) << local.status().to_string();
  ASSERT_EQ(local->objects.size(), 1U);
  EXPECT_EQ(local->name_of(local->objects[0].place), "shard.00000.mds");
  FakeS3Stores s3;
  ASSERT_TRUE(s3.upload(folder.path("mds"), "mds").is_ok());
  const auto remote = find_dataset(s3.set, FakeS3Stores::uri("mds"));
  ASSERT_TRUE(remote.is_ok()) << remote.status().to_string();
  EXPECT_EQ(remote->objects.size(), 1U);
  EXPECT_EQ(DatasetIndex::of_latents(*remote)->hash(), DatasetIndex::of_latents(*local)->hash());
  std::filesystem::rename(folder.path("mds/shard.00000.mds"), folder.path("mds/other.mds"));
  const Status missing = find_local_dataset(folder.path("mds")).status();
  EXPECT_NE(missing.message().find("shard.00000.mds"), std::string::npos) << missing.to_string();
}

TEST(dataset_index, names_a_dataset_that_is_missing_empty_or_damaged) {
  TemporaryFolder folder;
  EXPECT_EQ(find_local_dataset(folder.path("none")).status().code(), StatusCode::kNotFound);
  write_small_latents(folder.path("empty"), "a.parquet", {.num_rows = 0});
  EXPECT_EQ(DatasetIndex::of_latents(*find_local_dataset(folder.path("empty"))).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("bad/a.parquet"), "PAR1 no parquet PAR1").is_ok());
  EXPECT_EQ(DatasetIndex::of_latents(*find_local_dataset(folder.path("bad"))).status().code(), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace darkroom
