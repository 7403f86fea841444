#include "demo/latents_subset.h"

#include <arrow/array.h>
#include <arrow/builder.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/tensor_column.h"
#include "support/put_shard.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

constexpr int64_t kElements = 2;  // Shape {2, 1, 1}; row r holds 10 r, 10 r + 1.

// Rows "a", "b", ... of which row r of the dataset holds the latents above.
void write_shard(const std::string& folder, const std::string& name, const std::string& row_names, int first_row) {
  arrow::StringBuilder keys;
  std::vector<float> values;
  for (size_t i = 0; i < row_names.size(); ++i) {
    ASSERT_TRUE(keys.Append(row_names.substr(i, 1)).ok());
    const auto start = static_cast<float>(10 * (first_row + static_cast<int>(i)));
    values.insert(values.end(), {start, start + 1});
  }
  const auto latents = *make_tensor_column(TensorElement::kFloat32, {kElements, 1, 1}, std::as_bytes(std::span(values)));
  const auto schema = arrow::schema({arrow::field("key", arrow::utf8(), false), arrow::field("image_latents_8", latents->type(), false)});
  const auto batch = arrow::RecordBatch::Make(schema, static_cast<int64_t>(row_names.size()), {*keys.Finish(), latents});
  ASSERT_TRUE(put_shard(local_files(), folder, name, *batch, {{"darkroom.latents", R"({"version":1})"}}).is_ok());
}

class LatentsSubset : public ::testing::Test {
 protected:
  void SetUp() override {
    write_shard(latents_, "part-000000.parquet", "abc", 0);
    write_shard(latents_, "part-000003.parquet", "de", 3);
    ASSERT_TRUE(write_file_atomic(local_files(), latents_ + "/_empty_caption.safetensors", "empty").is_ok());
  }
  TemporaryFolder folder_;
  std::string latents_ = folder_.path("latents");
  std::string subset_ = folder_.path("subset");
};

std::vector<float> values_of(const torch::Tensor& tensor) { return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()}; }

TEST_F(LatentsSubset, keeps_the_chosen_rows_of_all_shards_with_their_facts) {
  const auto num_rows = write_latents_subset(local_files(), latents_, subset_, {"e", "b", "d"});
  ASSERT_TRUE(num_rows.is_ok()) << num_rows.status().to_string();
  EXPECT_EQ(*num_rows, 3);
  const TableFooter footer = *read_footer(local_files(), subset_ + "/part-000000.parquet");
  EXPECT_EQ(footer.num_rows, 3);
  ASSERT_NE(footer.find("darkroom.latents"), nullptr);
  EXPECT_EQ(*footer.find("darkroom.latents"), R"({"version":1})");
  EXPECT_EQ(*read_file(local_files(), subset_ + "/_empty_caption.safetensors"), "empty");
  EXPECT_THAT(values_of(*read_latents_of(local_files(), subset_, 8, {"b", "d", "e"})), ::testing::ElementsAre(10, 11, 30, 31, 40, 41));
}

TEST_F(LatentsSubset, reads_latents_in_the_order_asked_for) {
  const auto latents = read_latents_of(local_files(), latents_, 8, {"d", "a"});
  ASSERT_TRUE(latents.is_ok()) << latents.status().to_string();
  EXPECT_EQ(latents->sizes(), (std::vector<int64_t>{2, kElements, 1, 1}));
  EXPECT_THAT(values_of(*latents), ::testing::ElementsAre(30, 31, 0, 1));
}

TEST_F(LatentsSubset, says_when_rows_or_columns_are_missing) {
  EXPECT_EQ(write_latents_subset(local_files(), latents_, subset_, {"z"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_latents_of(local_files(), latents_, 8, {"a", "z"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_latents_of(local_files(), latents_, 16, {"a"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_latents_of(local_files(), folder_.path("nowhere"), 8, {"a"}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
