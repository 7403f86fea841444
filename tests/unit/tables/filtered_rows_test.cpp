#include "darkroom/tables/filtered_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/files/memory_files.h"
#include "parquet_bytes.h"
#include "table_rows.h"
#include "where_samples.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct TableRead {
  int64_t first = 0;
  int64_t count = 0;
  std::vector<std::string> columns = {};

  bool operator==(const TableRead&) const = default;
};

void PrintTo(const TableRead& read, std::ostream* out) { *out << read.first << "+" << read.count << testing::PrintToString(read.columns); }

/// Remembers what is read.
class WatchedTable final : public TableReader {
 public:
  explicit WatchedTable(std::unique_ptr<TableReader> table) : table_(std::move(table)) {}
  const std::string& path() const override { return table_->path(); }
  TableFormat format() const override { return table_->format(); }
  const std::shared_ptr<arrow::Schema>& schema() const override { return table_->schema(); }
  Result<int64_t> num_rows() override { return table_->num_rows(); }
  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    if (count > 0) {
      reads.push_back({first, count, columns});
    }
    return table_->read_rows(first, count, columns, options);
  }
  std::vector<RowGroup> row_groups(int64_t first, int64_t count, const std::vector<std::string>& columns) override {
    return table_->row_groups(first, count, columns);
  }

  std::vector<TableRead> reads;

 private:
  std::unique_ptr<TableReader> table_;
};

struct FilteredRead {
  std::vector<int64_t> numbers;  // In the table.
  std::vector<std::string> texts;
  int64_t num_dropped = 0;
  int64_t num_malformed = 0;
};

std::string cell_text(const arrow::Array& array, int64_t row) { return array.GetScalar(row).ValueOrDie()->ToString(); }

std::string row_text(const arrow::RecordBatch& batch, const std::vector<std::string>& columns, int64_t row) {
  std::string text;
  for (const std::string& column : columns) {
    const auto array = batch.GetColumnByName(column);
    text += (array == nullptr ? "no " + column : cell_text(*array, row)) + "|";
  }
  return text;
}

Result<FilteredRead> read_filtered(TableReader& table, const std::string& where, int64_t first, int64_t count,
                                   const std::vector<std::string>& columns, const ReadOptions& options = {}) {
  std::optional<RowFilter> filter;
  if (!where.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const WhereExpression expression, WhereExpression::parse(where));
    DARKROOM_ASSIGN_OR_RETURN(filter, expression.bind(*table.schema(), table.format(), table.path()));
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, FilteredRows::open(table, filter ? &*filter : nullptr, first, count, columns, options));
  FilteredRead read;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const FilteredBatch batch, rows->next());
    if (batch.batch == nullptr) {
      break;
    }
    EXPECT_THAT(batch.kept, testing::Not(IsEmpty()));
    EXPECT_EQ(batch.batch->schema()->field_names(), columns.empty() ? table.schema()->field_names() : columns);
    for (const int64_t row : batch.kept) {
      read.numbers.push_back(batch.first_row + row);
      read.texts.push_back(row_text(*batch.batch, batch.batch->schema()->field_names(), row));
    }
  }
  EXPECT_EQ((*rows->next()).batch, nullptr);  // The end stays the end.
  read.num_dropped = rows->num_dropped();
  read.num_malformed = rows->num_malformed_rows();
  return read;
}

class FilteredTables : public testing::Test {
 protected:
  std::unique_ptr<WatchedTable> open(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(put_file(files_, name, bytes).is_ok());
    auto table = open_table(files_, name);
    EXPECT_TRUE(table.is_ok()) << table.status().to_string();
    return std::make_unique<WatchedTable>(*std::move(table));
  }

  /// Rows 0, 1, ... with x = the number and name = "row NUMBER"; ten in a row group.
  std::unique_ptr<WatchedTable> numbered(int num_rows) {
    std::vector<int32_t> numbers;
    std::vector<std::optional<std::string>> names;
    for (int row = 0; row < num_rows; ++row) {
      numbers.push_back(row);
      names.push_back("row " + std::to_string(row));
    }
    const auto schema = arrow::schema({arrow::field("x", arrow::int32()), arrow::field("name", arrow::utf8())});
    return open("a.parquet", parquet_bytes(*arrow::RecordBatch::Make(schema, num_rows, {integers(numbers), strings(names)}), 10, true));
  }

  MemoryFileSystem files_;
};

TEST_F(FilteredTables, row_groups_that_the_statistics_rule_out_are_not_read) {
  const auto table = numbered(100);
  const auto read = read_filtered(*table, "x = 34 OR x = 36", 0, 100, {"name"});
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_THAT(read->numbers, ElementsAre(34, 36));
  EXPECT_THAT(read->texts, ElementsAre("row 34|", "row 36|"));
  EXPECT_EQ(read->num_dropped, 98);
  EXPECT_THAT(table->reads, ElementsAre(TableRead{30, 10, {"x"}}, TableRead{34, 3, {"name"}}));
}

TEST_F(FilteredTables, row_groups_that_are_kept_whole_are_not_asked) {
  const auto table = numbered(40);
  const auto read = read_filtered(*table, "x >= 10", 5, 30, {"name"});
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read->numbers.size(), 25U);
  EXPECT_EQ(read->numbers.front(), 10);
  EXPECT_EQ(read->num_dropped, 5);
  EXPECT_THAT(table->reads, ElementsAre(TableRead{10, 25, {"name"}}));
}

TEST_F(FilteredTables, a_row_group_of_which_no_row_is_kept_is_read_in_the_filters_columns_only) {
  const auto table = numbered(20);
  const auto read = read_filtered(*table, "name = 'row 1x'", 0, 20, {"x"});
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_THAT(read->numbers, IsEmpty());
  EXPECT_EQ(read->num_dropped, 20);
  EXPECT_THAT(table->reads, ElementsAre(TableRead{0, 10, {"name"}}));
}

TEST_F(FilteredTables, without_a_filter_every_row_is_kept_in_one_pass) {
  const auto table = numbered(25);
  const auto read = read_filtered(*table, "", 3, 100, {"x"});
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read->numbers.size(), 22U);
  EXPECT_EQ(read->numbers.front(), 3);
  EXPECT_EQ(read->num_dropped, 0);
  EXPECT_THAT(table->reads, ElementsAre(TableRead{3, 100, {"x"}}));
}

TEST_F(FilteredTables, conditions_without_a_column_hold_for_every_row_or_for_none) {
  for (const auto& [where, num_kept] : {std::pair("TRUE", 25), std::pair("1 = 2", 0), std::pair("NOT FALSE AND 1 < 2", 25)}) {
    const auto table = numbered(25);
    const auto read = read_filtered(*table, where, 0, 25, {"x"});
    ASSERT_TRUE(read.is_ok()) << where << read.status().to_string();
    EXPECT_EQ(read->numbers.size(), static_cast<size_t>(num_kept)) << where;
    EXPECT_EQ(read->num_dropped, 25 - num_kept) << where;
  }
}

TEST_F(FilteredTables, no_rows_and_rows_past_the_end) {
  const auto table = numbered(25);
  for (const auto& [first, count] : {std::pair(0, 0), std::pair(25, 5), std::pair(1000, 5)}) {
    const auto read = read_filtered(*table, "x >= 0", first, count, {"x"});
    ASSERT_TRUE(read.is_ok()) << read.status().to_string();
    EXPECT_EQ(read->numbers.size() + static_cast<size_t>(read->num_dropped), 0U);
  }
  const auto last = read_filtered(*table, "x != 23", 22, 1000, {"x"});
  EXPECT_THAT(last->numbers, ElementsAre(22, 24));
  EXPECT_EQ(last->num_dropped, 1);
}

TEST_F(FilteredTables, a_text_table_is_read_once_and_malformed_rows_are_counted) {
  const auto table = open("a.csv", "x,name\n1,a\n2,b\n3\nno number,d\n12,e\n");
  const auto read = read_filtered(*table, "x > 1", 0, 100, {"name"});
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_THAT(read->numbers, ElementsAre(1, 4));
  EXPECT_THAT(read->texts, ElementsAre("b|", "e|"));
  EXPECT_EQ(read->num_dropped, 3);
  EXPECT_EQ(read->num_malformed, 1);
  EXPECT_THAT(table->reads, ElementsAre(TableRead{0, 100, {"name", "x"}}));
}

TEST_F(FilteredTables, a_missing_column_is_said_before_anything_is_read) {
  for (const auto& table : {numbered(25), open("a.csv", "x\n1\n")}) {
    const auto read = read_filtered(*table, "x = 1000", 0, 25, {"nmae"});
    EXPECT_EQ(read.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(read.status().to_string(), HasSubstr("there is no column \"nmae\""));
  }
}

TEST_F(FilteredTables, damaged_pages_are_an_error_and_not_fewer_rows) {
  const auto whole = numbered(30);
  std::string bytes = *read_file(files_, "a.parquet");
  int64_t num_noticed = 0;
  for (size_t at = 4; at < 400; ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const auto table = open("a.parquet", damaged);
    const auto read = read_filtered(*table, "x >= 0 AND name >= 'row 1'", 0, 30, {"name"});
    if (!read.is_ok()) {
      EXPECT_EQ(read.status().code(), StatusCode::kCorruptData) << read.status().to_string();
      ++num_noticed;
    } else {
      EXPECT_EQ(static_cast<int64_t>(read->numbers.size()) + read->num_dropped, 30) << at;
    }
  }
  EXPECT_GT(num_noticed, 50);
}

// Against every row read and asked alone.
TEST_F(FilteredTables, keeps_what_the_filter_keeps_of_any_table_and_range) {
  Random random(1981);
  std::array<int64_t, 2> counts{};  // Kept, dropped.
  for (int i = 0; i < 150; ++i) {
    const int64_t rows_per_group = 1 + static_cast<int64_t>(draw(random, 9));
    const SampleTable sample = draw_table(random, typed_columns(), 1 + static_cast<int64_t>(draw(random, 40)), rows_per_group);
    const auto table = open("a.parquet", parquet_bytes(*sample.batch, rows_per_group, !draw_chance(random, 20)));
    const auto all = read_range(*table, 0, sample.num_rows());
    ASSERT_TRUE(all.is_ok()) << all.status().to_string();
    SampleWriter writer(random, sample.columns, true);
    for (int j = 0; j < 6; ++j) {
      const std::string where = writer.write(writer.draw_expression(static_cast<int>(draw(random, 3))));
      const auto first = static_cast<int64_t>(draw(random, static_cast<size_t>(sample.num_rows()) + 2));
      const auto count = static_cast<int64_t>(draw(random, 45));
      std::vector<std::string> columns;
      for (size_t k = draw(random, 4); k > 0; --k) {
        const std::string name = draw_one(random, sample.columns).name;
        if (std::find(columns.begin(), columns.end(), name) == columns.end()) {
          columns.push_back(name);
        }
      }
      const ReadOptions options{.max_batch_rows = 1 + static_cast<int64_t>(draw(random, 12))};
      const auto read = read_filtered(*table, where, first, count, columns, options);
      ASSERT_TRUE(read.is_ok()) << where << ": " << read.status().to_string();

      const auto filter = WhereExpression::parse(where)->bind(*table->schema(), TableFormat::kParquet, "t").value();
      std::vector<uint8_t> keep;
      ASSERT_TRUE(filter.evaluate(**all, keep).is_ok());
      const std::vector<std::string> names = columns.empty() ? table->schema()->field_names() : columns;
      std::vector<int64_t> numbers;
      std::vector<std::string> texts;
      const int64_t end = std::max(first, std::min(first + count, sample.num_rows()));
      for (int64_t row = first; row < end; ++row) {
        if (keep[static_cast<size_t>(row)] != 0) {
          numbers.push_back(row);
          texts.push_back(row_text(**all, names, row));
        }
      }
      ASSERT_EQ(read->numbers, numbers) << where << " of " << first << "+" << count;
      ASSERT_EQ(read->texts, texts) << where;
      ASSERT_EQ(read->num_dropped, end - first - static_cast<int64_t>(numbers.size())) << where;
      counts[0] += static_cast<int64_t>(numbers.size());
      counts[1] += read->num_dropped;
    }
  }
  EXPECT_GT(counts[0], 1000);
  EXPECT_GT(counts[1], 1000);
}

}  // namespace
}  // namespace darkroom
