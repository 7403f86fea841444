#include "darkroom/feed/row_group_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/feed/dataset_files.h"
#include "small_datasets.h"
#include "support/image_containers.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

TEST(RowGroupReader, a_part_that_moved_aside_for_its_next_generation_is_read_there) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  const DatasetFiles files = find_local_dataset(dataset).value();
  const auto reader = RowGroupReader::create(files, DatasetIndex::of_latents(files).value());
  std::filesystem::create_directory(dataset + "/_superseded");
  std::filesystem::rename(dataset + "/part-000000.parquet", dataset + "/_superseded/part-000000.parquet");
  const auto place = reader->locate(4);
  ASSERT_TRUE(place.is_ok()) << place.status().to_string();
  EXPECT_TRUE(reader->read(*place, {}).is_ok());
}

TEST(RowGroupReader, a_part_that_is_nowhere_is_named) {
  const TemporaryFolder folder;
  const std::string dataset = folder.path("data");
  write_small_latents(dataset, "part-000000.parquet", {.num_rows = 5});
  const DatasetFiles files = find_local_dataset(dataset).value();
  const auto reader = RowGroupReader::create(files, DatasetIndex::of_latents(files).value());
  std::filesystem::remove(dataset + "/part-000000.parquet");
  const Status status = reader->locate(0).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("data/part-000000.parquet"));
}

TEST(RowGroupReader, what_changed_since_the_run_began_is_told) {
  const TemporaryFolder folder;
  std::vector<ContainedRow> rows = {{"1", "a house", "picture"}, {"2", "a tree", "picture"}};
  write_tars(local_files(), folder.path("tar"), rows);
  write_mds(local_files(), folder.path("mds"), rows);
  write_plain_folder(local_files(), folder.path("plain"), rows);
  rows.insert(rows.begin(), {"0", "a road", "picture"});
  for (const std::string container : {"tar", "mds", "plain"}) {
    const DatasetFiles files = find_local_image_dataset(folder.path(container)).value();
    const auto index = DatasetIndex::of_images(files, 1);
    ASSERT_TRUE(index.is_ok()) << index.status().to_string();
    EXPECT_TRUE(RowGroupReader::create(files, *index)->locate(1).is_ok()) << container;
    const auto reader = RowGroupReader::create(files, *index);
    std::filesystem::remove_all(folder.path(container));
    container == "tar"   ? write_tars(local_files(), folder.path("tar"), rows)
    : container == "mds" ? write_mds(local_files(), folder.path("mds"), rows)
                         : write_plain_folder(local_files(), folder.path("plain"), rows);
    const Status status = reader->locate(1).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << container << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("changed since the run began"));
  }
}

}  // namespace
}  // namespace darkroom
