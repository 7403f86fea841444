#include "encode/table_rows.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

#include "support/put_shard.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

/// A table of the numbers 0, 1, ... in row groups of `group_rows`.
std::string write_numbers(const TemporaryFolder& folder, int64_t num_rows, int64_t group_rows) {
  const auto schema = arrow::schema({arrow::field("number", arrow::int64(), false)});
  arrow::Int64Builder numbers;
  for (int64_t i = 0; i < num_rows; ++i) {
    EXPECT_TRUE(numbers.Append(i).ok());
  }
  const auto rows = arrow::RecordBatch::Make(schema, num_rows, {*numbers.Finish()});
  EXPECT_TRUE(put_shard(local_files(), folder.path(), "numbers.parquet", *rows, {}, {.row_group_bytes = 8 * group_rows}).is_ok());
  return folder.path("numbers.parquet");
}

TableRows open_rows(const std::string& path, int64_t batch_rows = 7) {
  return TableRows(*open_table(local_files(), path), {"number"}, {.max_batch_rows = batch_rows});
}

/// Rows [first, first + count), read as an item is.
std::vector<int64_t> read_item(TableRows& rows, int64_t first, int64_t count) {
  const Status sought = rows.seek(first);
  EXPECT_TRUE(sought.is_ok()) << sought.to_string();
  std::vector<int64_t> numbers;
  while (static_cast<int64_t>(numbers.size()) < count) {
    const auto batch = rows.next(count - static_cast<int64_t>(numbers.size()));
    EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
    if (!batch.is_ok() || *batch == nullptr) {
      break;
    }
    const auto& values = static_cast<const arrow::Int64Array&>(*(*batch)->column(0));
    for (int64_t i = 0; i < values.length(); ++i) {
      numbers.push_back(values.Value(i));
    }
  }
  return numbers;
}

std::vector<int64_t> numbers_from(int64_t first, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = first; i < first + count; ++i) {
    numbers.push_back(i);
  }
  return numbers;
}

TEST(TableRows, items_that_follow_each_other_are_read_in_one_go) {
  const TemporaryFolder folder;
  const std::string path = write_numbers(folder, 100, 40);
  for (const int64_t item_rows : {1, 6, 7, 8, 13, 40, 99, 100}) {
    TableRows rows = open_rows(path);
    for (int64_t first = 0; first < 100; first += item_rows) {
      const int64_t count = std::min<int64_t>(item_rows, 100 - first);
      EXPECT_EQ(read_item(rows, first, count), numbers_from(first, count)) << item_rows;
    }
    EXPECT_EQ(rows.num_ranges(), 1) << item_rows;
  }
}

TEST(TableRows, every_item_is_right_in_whatever_order) {
  const TemporaryFolder folder;
  const std::string path = write_numbers(folder, 101, 20);
  for (const int64_t batch_rows : {1, 5, 1000}) {
    TableRows rows = open_rows(path, batch_rows);
    for (int64_t step = 1; step < 12; ++step) {
      const int64_t first = step * 37 % 101;
      const int64_t count = std::min<int64_t>(step, 101 - first);
      EXPECT_EQ(read_item(rows, first, count), numbers_from(first, count)) << first;
    }
  }
}

TEST(TableRows, what_lies_ahead_in_the_row_group_is_gone_on_to_and_what_lies_elsewhere_is_begun_anew) {
  const TemporaryFolder folder;
  TableRows rows = open_rows(write_numbers(folder, 100, 40));
  EXPECT_EQ(read_item(rows, 0, 5), numbers_from(0, 5));
  EXPECT_EQ(read_item(rows, 20, 5), numbers_from(20, 5));
  EXPECT_EQ(rows.num_ranges(), 1);
  EXPECT_EQ(read_item(rows, 60, 5), numbers_from(60, 5));  // Past what is left of its row group.
  EXPECT_EQ(rows.num_ranges(), 2);
  EXPECT_EQ(read_item(rows, 3, 5), numbers_from(3, 5));
  EXPECT_EQ(rows.num_ranges(), 3);
}

TEST(TableRows, a_table_ends) {
  const TemporaryFolder folder;
  TableRows rows = open_rows(write_numbers(folder, 10, 4));
  EXPECT_EQ(read_item(rows, 8, 5), numbers_from(8, 2));
  EXPECT_EQ(read_item(rows, 10, 1), numbers_from(0, 0));
  EXPECT_EQ(read_item(rows, 50, 1), numbers_from(0, 0));
  EXPECT_EQ(read_item(rows, 0, 10), numbers_from(0, 10));
}

}  // namespace
}  // namespace darkroom
