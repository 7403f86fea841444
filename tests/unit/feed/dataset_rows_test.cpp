#include "darkroom/feed/dataset_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "darkroom/tables/bytes_column.h"
#include "small_datasets.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

class DatasetRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_small_latents(folder_.path(), "part-000000.parquet", {.first = 0, .num_rows = 7});
    write_small_latents(folder_.path(), "part-000001.parquet", {.first = 7, .num_rows = 1});
    write_small_latents(folder_.path(), "part-000002.parquet", {.first = 8, .num_rows = 5, .element = TensorElement::kFloat32});
  }
  Result<std::unique_ptr<DatasetRows>> open(int64_t first, int64_t count, std::vector<std::string> columns = {}) {
    DARKROOM_ASSIGN_OR_RETURN(DatasetFiles files, find_local_dataset(folder_.path()));
    return DatasetRows::open(std::move(files), first, count, std::move(columns), {.batch_bytes = 64, .max_batch_rows = 3});
  }
  /// The numbers in the keys of the rows read.
  std::vector<int64_t> read(int64_t first, int64_t count) {
    auto rows = open(first, count, {"key"});
    EXPECT_TRUE(rows.is_ok()) << rows.status().to_string();
    std::vector<int64_t> numbers;
    while (true) {
      const auto batch = (*rows)->next();
      EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
      if (!batch.is_ok() || *batch == nullptr) {
        return numbers;
      }
      EXPECT_EQ((*batch)->num_columns(), 1);
      EXPECT_GT((*batch)->num_rows(), 0);
      const BytesColumn keys = *BytesColumn::open("", "key", (*batch)->column(0));
      for (int64_t row = 0; row < (*batch)->num_rows(); ++row) {
        numbers.push_back(std::stoll(std::string(*keys.at(row)).substr(4)));
      }
    }
  }

  TemporaryFolder folder_;
};

TEST_F(DatasetRowsTest, any_run_of_rows_crosses_the_files_in_their_order) {
  for (const int64_t first : {0, 1, 6, 7, 8, 12, 13, 14}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{8}, int64_t{13}, kAll}) {
      std::vector<int64_t> want(static_cast<size_t>(std::max<int64_t>(0, std::min(count, 13 - first))));
      std::iota(want.begin(), want.end(), first);
      EXPECT_EQ(read(first, count), want) << first << " " << count;
    }
  }
}

TEST_F(DatasetRowsTest, each_files_columns_keep_their_own_types) {
  auto rows = *open(0, kAll);
  std::vector<std::string> types;
  while (const auto batch = *rows->next()) {
    const std::string type = batch->GetColumnByName("image_latents_8")->type()->ToString();
    if (types.empty() || types.back() != type) {
      types.push_back(type);
    }
  }
  ASSERT_EQ(types.size(), 2u);
  EXPECT_THAT(types[0], HasSubstr("halffloat"));
  EXPECT_THAT(types[1], HasSubstr("value_type=float"));
}

TEST_F(DatasetRowsTest, a_missing_column_names_the_file_and_those_that_exist) {
  const auto failure = (*open(9, 1, {"keys"}))->next().status();
  EXPECT_EQ(failure.code(), StatusCode::kNotFound);
  EXPECT_THAT(failure.message(), HasSubstr("part-000002.parquet"));
  EXPECT_THAT(failure.message(), HasSubstr("caption_embeddings"));
}

TEST_F(DatasetRowsTest, negative_numbers_are_refused) {
  EXPECT_EQ(open(-1, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(open(0, -1).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
