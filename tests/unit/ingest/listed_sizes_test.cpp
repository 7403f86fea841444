#include "ingest/listed_sizes.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/planned_jobs.h"

namespace darkroom {
namespace {

class ListedSizes : public ::testing::Test {
 protected:
  template <typename Builder>
  PendingWork look_at(const std::string& name, Builder& sizes) {
    const auto column = *sizes.Finish();
    const auto schema = arrow::schema({arrow::field("other", column->type()), arrow::field(name, column->type())});
    EXPECT_TRUE(put_shard(files_, "in", "a.parquet", *arrow::RecordBatch::Make(schema, column->length(), {column, column})).is_ok());
    PendingWork work;
    const Status status = look_for_sizes(**plan_job(*store_), {}, work);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return work;
  }
  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
};

TEST_F(ListedSizes, are_the_mean_of_the_numbers_in_a_column_of_a_known_name) {
  arrow::Int64Builder sizes;
  ASSERT_TRUE((sizes.AppendValues({100, 0, -7, 300}) & sizes.AppendNull()).ok());
  const PendingWork work = look_at("Size_Bytes", sizes);
  EXPECT_EQ(work.size_column, "Size_Bytes");
  EXPECT_EQ(work.sized_rows, 2);
  EXPECT_DOUBLE_EQ(work.sized_bytes, 200);
}

TEST_F(ListedSizes, leave_out_what_is_no_number) {
  arrow::DoubleBuilder sizes;
  ASSERT_TRUE(sizes.AppendValues({std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 50}).ok());
  EXPECT_DOUBLE_EQ(look_at("bytes", sizes).sized_bytes, 50);
}

TEST_F(ListedSizes, are_unknown_without_such_a_column_and_where_it_holds_text) {
  arrow::Int32Builder widths;
  ASSERT_TRUE(widths.Append(5).ok());
  EXPECT_EQ(look_at("width", widths).size_column, "");
  ASSERT_TRUE(files_.remove_tree("in").is_ok());
  arrow::StringBuilder texts;
  ASSERT_TRUE(texts.Append("5").ok());
  EXPECT_EQ(look_at("size", texts).size_column, "");
}

TEST_F(ListedSizes, are_of_the_first_column_of_numbers) {
  arrow::StringBuilder texts;
  arrow::BinaryBuilder pictures;
  arrow::Int64Builder numbers;
  ASSERT_TRUE((texts.Append("1024x768") & pictures.Append("a picture") & numbers.Append(500)).ok());
  const arrow::ArrayVector columns = {*texts.Finish(), *pictures.Finish(), *numbers.Finish()};
  const auto schema = arrow::schema(
      {arrow::field("size", arrow::utf8()), arrow::field("bytes", arrow::binary()), arrow::field("file_size", arrow::int64())});
  ASSERT_TRUE(put_shard(files_, "in", "a.parquet", *arrow::RecordBatch::Make(schema, 1, columns)).is_ok());
  PendingWork work;
  ASSERT_TRUE(look_for_sizes(**plan_job(*store_), {}, work).is_ok());
  EXPECT_EQ(work.size_column, "file_size");
  EXPECT_DOUBLE_EQ(work.sized_bytes, 500);
}

TEST_F(ListedSizes, look_at_the_first_10000_pending_rows) {
  arrow::UInt32Builder sizes;
  for (uint32_t row = 0; row < 12'000; ++row) {
    ASSERT_TRUE(sizes.Append(row < 10'000 ? 10 : 1'000'000).ok());
  }
  const auto column = *sizes.Finish();
  const auto schema = arrow::schema({arrow::field("bytes", column->type())});
  ASSERT_TRUE(put_shard(files_, "in", "a.parquet", *arrow::RecordBatch::Make(schema, column->length(), {column})).is_ok());
  PendingWork work;
  ASSERT_TRUE(look_for_sizes(**plan_job(*store_, {}, small_job(20'000)), {}, work).is_ok());
  EXPECT_EQ(work.sized_rows, 10'000);
  EXPECT_DOUBLE_EQ(work.sized_bytes, 10);
}

}  // namespace
}  // namespace darkroom
