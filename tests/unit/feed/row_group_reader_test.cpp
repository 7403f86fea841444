#include "darkroom/feed/row_group_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/feed/dataset_files.h"
#include "small_datasets.h"
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

}  // namespace
}  // namespace darkroom
