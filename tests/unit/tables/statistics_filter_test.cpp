#include "darkroom/tables/statistics_filter.h"

#include <arrow/io/memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/statistics.h>

#include <string>
#include <vector>

#include "darkroom/tables/where.h"
#include "parquet_bytes.h"
#include "tables/parquet_statistics.h"
#include "where_samples.h"

namespace darkroom {
namespace {

Reach reach(const std::string& text, const arrow::Schema& schema, const RowGroupStatistics& group) {
  const auto expression = WhereExpression::parse(text);
  EXPECT_TRUE(expression.is_ok()) << text << ": " << expression.status().to_string();
  return expression->bind(schema, TableFormat::kParquet, "t.parquet")->reach(group);
}

/// Ten rows of one column x with what is known of it.
struct Known {
  std::shared_ptr<arrow::DataType> type;
  ColumnStatistics x;

  Reach operator()(const std::string& text) const {
    return reach(text, *arrow::schema({arrow::field("x", type)}), {.num_rows = 10, .columns = {{"x", x}}});
  }
};

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

TEST(row_group_reach, whole_numbers_between_two_bounds) {
  const Known known{arrow::int32(), {.min = int64_t{10}, .max = int64_t{20}, .num_nulls = 0}};
  for (const char* none : {"x < 10", "x <= 9.5", "x > 20", "x = 9", "x = 10.5 AND x = 21", "x IN (1, 30)", "x IS NULL", "NOT x >= 10",
                           "x < 15 AND x > 20", "30 < x", "x = x AND x < 0"}) {
    EXPECT_EQ(known(none), Reach::kNone) << none;
  }
  for (const char* some :
       {"x < 11", "x <= 10", "x > 19", "x >= 20", "x = 10", "x = 20", "x != 15", "x IN (1, 12)", "x NOT IN (12)", "NOT x = 15", "x < x"}) {
    EXPECT_EQ(known(some), Reach::kSome) << some;
  }
  for (const char* all : {"x >= 10", "x < 20.5", "x != 9", "x NOT IN (9, 21)", "x IS NOT NULL", "NOT x < 10", "x >= 10 AND x <= 20",
                          "x = 15 OR x > 0", "NOT (x IS NULL OR x = 0)"}) {
    EXPECT_EQ(known(all), Reach::kAll) << all;
  }
}

TEST(row_group_reach, nulls_are_never_kept_by_a_comparison) {
  Known known{arrow::int32(), {.min = int64_t{10}, .max = int64_t{20}, .num_nulls = 1}};
  EXPECT_EQ(known("x >= 10"), Reach::kSome);
  EXPECT_EQ(known("x IS NULL"), Reach::kSome);
  EXPECT_EQ(known("x >= 10 OR x IS NULL"), Reach::kSome);  // They are looked at apart.
  known.x.num_nulls.reset();
  EXPECT_EQ(known("x >= 10"), Reach::kSome);
  EXPECT_EQ(known("x < 10"), Reach::kNone);
  known.x = {.min = {}, .max = {}, .num_nulls = 10};
  EXPECT_EQ(known("x >= 10"), Reach::kNone);
  EXPECT_EQ(known("NOT x >= 10"), Reach::kNone);
  EXPECT_EQ(known("x IN (1)"), Reach::kNone);
  EXPECT_EQ(known("x NOT IN (1)"), Reach::kNone);
  EXPECT_EQ(known("x IS NULL"), Reach::kAll);
  EXPECT_EQ(known("x = 1 OR TRUE"), Reach::kAll);
}

TEST(row_group_reach, nan_may_hide_between_the_bounds_of_floats) {
  const Known known{arrow::float64(), {.min = 0.5, .max = 0.75, .num_nulls = 0}};
  EXPECT_EQ(known("x < 1"), Reach::kSome);
  EXPECT_EQ(known("x != 1"), Reach::kSome);
  EXPECT_EQ(known("x NOT IN (1)"), Reach::kSome);
  EXPECT_EQ(known("NOT x > 1"), Reach::kAll);   // False for NaN, too.
  EXPECT_EQ(known("NOT x < 1"), Reach::kSome);  // The NaNs.
  EXPECT_EQ(known("x > 1"), Reach::kNone);
  EXPECT_EQ(known("x IS NOT NULL"), Reach::kAll);
}

TEST(row_group_reach, bounds_that_make_no_sense_say_nothing) {
  const std::vector<ColumnStatistics> senseless = {
      {.min = int64_t{20}, .max = int64_t{10}, .num_nulls = {}},
      {.min = kNotANumber, .max = kNotANumber, .num_nulls = {}},
      {.min = kNotANumber, .max = 10.0, .num_nulls = {}},  // What was compared with NaN bounds nothing.
      {.min = 20.0, .max = kNotANumber, .num_nulls = {}},
      {.min = std::string("a"), .max = std::string("b"), .num_nulls = {}},
      {.min = true, .max = true, .num_nulls = {}},
      {.min = {}, .max = {}, .num_nulls = 11},
      {.min = {}, .max = {}, .num_nulls = -1},
      {},
  };
  for (size_t i = 0; i < senseless.size(); ++i) {
    const Known known{arrow::float64(), senseless[i]};
    for (const char* text : {"x > 100", "x < 0", "x = 15", "x IS NULL", "x IS NOT NULL", "NOT x > 100", "x IN (1)"}) {
      EXPECT_EQ(known(text), Reach::kSome) << i << " " << text;
    }
  }
}

TEST(row_group_reach, one_bound_is_enough_where_it_decides) {
  const Known at_least{arrow::int64(), {.min = int64_t{10}, .max = {}, .num_nulls = 0}};
  EXPECT_EQ(at_least("x < 10"), Reach::kNone);
  EXPECT_EQ(at_least("x >= 10"), Reach::kAll);
  EXPECT_EQ(at_least("x > 10"), Reach::kSome);
  const Known at_most{arrow::uint64(), {.min = {}, .max = uint64_t{10}, .num_nulls = 0}};
  EXPECT_EQ(at_most("x > 10"), Reach::kNone);
  EXPECT_EQ(at_most("x < 10.5"), Reach::kAll);
  EXPECT_EQ(at_most("x < 10"), Reach::kSome);
}

TEST(row_group_reach, one_value_alone) {
  const Known known{arrow::int64(), {.min = int64_t{10}, .max = int64_t{10}, .num_nulls = 0}};
  EXPECT_EQ(known("x = 10"), Reach::kAll);
  EXPECT_EQ(known("x IN (1, 10)"), Reach::kAll);
  EXPECT_EQ(known("x != 10"), Reach::kNone);
  EXPECT_EQ(known("x NOT IN (10)"), Reach::kNone);
  EXPECT_EQ(known("x = x"), Reach::kAll);
}

TEST(row_group_reach, numbers_are_rounded_as_for_rows) {
  const Known known{arrow::float32(), {.min = double{0.1F}, .max = double{0.1F}, .num_nulls = 0}};
  EXPECT_EQ(known("x = 0.1"), Reach::kSome);  // All, but for NaNs.
  EXPECT_EQ(known("x < 0.1"), Reach::kNone);
  EXPECT_EQ(known("x > 0.1"), Reach::kNone);
}

TEST(row_group_reach, texts_and_beginnings) {
  const Known known{arrow::utf8(), {.min = std::string("https://b"), .max = std::string("https://d"), .num_nulls = 0}};
  for (const char* none :
       {"x LIKE 'http:%'", "x LIKE 'https://a%'", "x LIKE 'https://e_'", "x < 'https'", "x = 'ftp'", "x NOT LIKE 'https://%'"}) {
    EXPECT_EQ(known(none), Reach::kNone) << none;
  }
  for (const char* some :
       {"x LIKE 'https://c%'", "x LIKE 'https://b%'", "x LIKE 'https://d%'", "x LIKE 'https://_'", "x LIKE 'https://%g'",
        "x LIKE '%'  AND x LIKE '%x'", "x NOT LIKE 'https://c%'", "x LIKE 'https://c'", "x LIKE '%'  AND x != 'https://c'"}) {
    EXPECT_EQ(known(some), Reach::kSome) << some;
  }
  for (const char* all :
       {"x LIKE 'https://%'", "x LIKE 'https:%%'", "x LIKE '%'", "x NOT LIKE 'http:%'", "x > 'https://a'", "x < 'https://e'"}) {
    EXPECT_EQ(known(all), Reach::kAll) << all;
  }
}

TEST(row_group_reach, truths) {
  const auto known = [](bool min, bool max, const char* text) {
    return Known{arrow::boolean(), {.min = min, .max = max, .num_nulls = 0}}(text);
  };
  EXPECT_EQ(known(false, false, "x"), Reach::kNone);
  EXPECT_EQ(known(false, true, "x"), Reach::kSome);
  EXPECT_EQ(known(true, true, "x"), Reach::kAll);
  EXPECT_EQ(known(false, false, "x = FALSE"), Reach::kAll);
  EXPECT_EQ(known(true, true, "x != TRUE"), Reach::kNone);
  EXPECT_EQ(known(true, true, "x IN (FALSE)"), Reach::kNone);
}

TEST(row_group_reach, no_rows_are_none) {
  EXPECT_EQ(reach("TRUE", *arrow::schema({}), {.num_rows = 0, .columns = {}}), Reach::kNone);
  EXPECT_EQ(reach("TRUE", *arrow::schema({}), {.num_rows = 1, .columns = {}}), Reach::kAll);
  EXPECT_EQ(reach("FALSE", *arrow::schema({}), {.num_rows = 1, .columns = {}}), Reach::kNone);
}

TEST(row_group_reach, statistics_of_a_text_table_say_nothing) {
  const auto schema = arrow::schema({arrow::field("x", arrow::utf8())});
  const auto filter = WhereExpression::parse("x > 5")->bind(*schema, TableFormat::kCsv, "t.csv").value();
  EXPECT_EQ(filter.reach({.num_rows = 10, .columns = {{"x", {.min = int64_t{1}, .max = int64_t{2}, .num_nulls = 0}}}}), Reach::kSome);
}

// Files.

std::shared_ptr<parquet::FileMetaData> metadata_of(const std::string& bytes) {
  return parquet::ParquetFileReader::Open(std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(bytes)))->metadata();
}

std::shared_ptr<arrow::RecordBatch> column_batch(const std::shared_ptr<arrow::Field>& field, const std::vector<SampleCell>& cells) {
  return arrow::RecordBatch::Make(arrow::schema({field}), static_cast<int64_t>(cells.size()), {build_array(*field->type(), cells)});
}

ColumnStatistics statistics_of(const std::shared_ptr<arrow::Field>& field, const std::vector<SampleCell>& cells) {
  const RowGroupStatistics group = read_statistics(*metadata_of(parquet_bytes(*column_batch(field, cells), 100, true)), 0, {field->name()});
  EXPECT_EQ(group.num_rows, static_cast<int64_t>(cells.size()));
  EXPECT_EQ(group.columns.size(), 1u);
  return group.columns.begin()->second;
}

TEST(parquet_statistics, reads_the_bounds_of_every_kind) {
  const auto is = [](const ColumnStatistics& column, const BoundValue& min, const BoundValue& max) {
    return column.min == min && column.max == max;
  };
  constexpr __int128 k63 = __int128{1} << 63;
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::int8()), whole_cells({5, -3, 7})), int64_t{-3}, int64_t{7}));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::int64()), whole_cells({-k63, k63 - 1})), INT64_MIN, INT64_MAX));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::uint16()), whole_cells({65535, 1})), uint64_t{1}, uint64_t{65535}));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::uint64()), whole_cells({2 * k63 - 1, 1})), uint64_t{1}, UINT64_MAX));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::float32()), real_cells({0.1F, kNotANumber, -2})), -2.0, double{0.1F}));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::float64()), real_cells({0.1, 7})), 0.1, 7.0));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::utf8()), text_cells({"b", "a", "\xFF"})), std::string("a"), std::string("\xFF")));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::dictionary(arrow::int32(), arrow::utf8())), text_cells({"b", "a"})),
                 std::string("a"), std::string("b")));
  EXPECT_TRUE(is(statistics_of(arrow::field("x", arrow::boolean()), {cell_of_boolean(true)}), true, true));
}

TEST(parquet_statistics, counts_nulls) {
  const SampleCell null;
  const ColumnStatistics all_null = statistics_of(arrow::field("x", arrow::int64()), {null, null});
  EXPECT_EQ(all_null.num_nulls, 2);
  EXPECT_FALSE(all_null.min.has_value());
  EXPECT_EQ(statistics_of(arrow::field("x", arrow::int64()), {null, cell_of(whole_number(1))}).num_nulls, 1);
  EXPECT_EQ(statistics_of(arrow::field("x", arrow::int64(), /*nullable=*/false), {cell_of(whole_number(1))}).num_nulls, 0);
}

TEST(parquet_statistics, takes_no_bounds_whose_order_it_does_not_know) {
  EXPECT_FALSE(statistics_of(arrow::field("x", arrow::decimal128(10, 2)), whole_cells({1, 2}, 2)).min.has_value());
  EXPECT_FALSE(statistics_of(arrow::field("x", arrow::float16()), real_cells({1, 2})).min.has_value());
  EXPECT_FALSE(statistics_of(arrow::field("x", arrow::float64()), real_cells({kNotANumber, kNotANumber})).min.has_value());
}

TEST(parquet_statistics, a_required_column_has_no_nulls_even_without_statistics) {
  const auto field = arrow::field("x", arrow::int64(), /*nullable=*/false);
  const auto file = metadata_of(parquet_bytes(*column_batch(field, whole_cells({1})), 100, false));
  const ColumnStatistics column = read_statistics(*file, 0, {"x"}).columns.at("x");
  EXPECT_EQ(column.num_nulls, 0);
  EXPECT_FALSE(column.min.has_value());
}

TEST(parquet_statistics, looks_into_no_lists_and_structs) {
  const auto one = arrow::field("x", arrow::int64());
  const auto numbers = build_array(*arrow::int64(), whole_cells({1, 2}));
  const auto parent = arrow::StructArray::Make({numbers}, {one}).ValueOrDie();
  // "s.x" is also the path of x in s.
  const auto batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("s", parent->type()), arrow::field("s.x", arrow::int64())}), 2,
                                              {parent, build_array(*arrow::int64(), whole_cells({7, 8}))});
  const RowGroupStatistics group = read_statistics(*metadata_of(parquet_bytes(*batch, 100, true)), 0, {"s", "x", "s.x", "no"});
  ASSERT_EQ(group.columns.size(), 1u);
  EXPECT_EQ(group.columns.at("s.x").min, BoundValue(int64_t{7}));
}

/// The file as a writer of before 2017 left it: no column orders, so that only the deprecated bounds count.
std::string without_column_orders(std::string bytes) {
  // The footer's field 7, a list of unions of one empty struct (Thrift's compact protocol: 0x19 is "next field, a list"), here of one
  // column. As field 11, which there is not, it is passed over.
  const std::string orders("\x19\x1C\x1C\x00\x00", 5);
  const size_t place = bytes.rfind(orders);
  EXPECT_NE(place, std::string::npos);
  bytes[place] = '\x59';
  return bytes;
}

TEST(parquet_statistics, deprecated_bounds_are_ignored) {
  const auto field = arrow::field("x", arrow::int64());
  const std::string bytes = parquet_bytes(*column_batch(field, whole_cells({3, 5})), 100, true);
  const auto old = metadata_of(without_column_orders(bytes));
  ASSERT_EQ(old->schema()->Column(0)->column_order().get_order(), parquet::ColumnOrder::UNDEFINED);
  ASSERT_TRUE(old->RowGroup(0)->ColumnChunk(0)->statistics()->HasMinMax());  // The library would take them.
  const ColumnStatistics column = read_statistics(*old, 0, {"x"}).columns.at("x");
  EXPECT_FALSE(column.min.has_value());
  EXPECT_FALSE(column.max.has_value());
  EXPECT_EQ(column.num_nulls, 0);
  EXPECT_TRUE(read_statistics(*metadata_of(bytes), 0, {"x"}).columns.at("x").min.has_value());
}

/// As writers cut long texts: a beginning, or one that is greater than all that begin so.
void cut_bounds(Random& random, RowGroupStatistics& group) {
  for (auto& [name, column] : group.columns) {
    auto* min = column.min ? std::get_if<std::string>(&*column.min) : nullptr;
    auto* max = column.max ? std::get_if<std::string>(&*column.max) : nullptr;
    if (min != nullptr && !min->empty() && draw_chance(random, 50)) {
      min->pop_back();
    }
    if (max != nullptr && !max->empty() && max->back() != '\xFF' && draw_chance(random, 50)) {
      max->back() = static_cast<char>(max->back() + 1);
    }
    if (draw_chance(random, 5)) {
      column.min.reset();
    }
    if (draw_chance(random, 5)) {
      column.num_nulls.reset();
    }
  }
}

TEST(row_group_reach, never_drops_a_row_that_the_filter_keeps) {
  Random random(64738);
  const std::vector<SampleColumn> columns = typed_columns();
  std::vector<std::string> names;
  for (const SampleColumn& column : columns) {
    names.push_back(column.name);
  }
  std::array<int64_t, 3> counts{};  // Of each Reach.
  for (int i = 0; i < 200; ++i) {
    const int64_t rows_per_group = 1 + static_cast<int64_t>(draw(random, 7));
    const SampleTable table = draw_table(random, columns, 1 + static_cast<int64_t>(draw(random, 30)), rows_per_group);
    const auto file = metadata_of(parquet_bytes(*table.batch, rows_per_group, !draw_chance(random, 10)));
    SampleWriter writer(random, columns, true);
    for (int j = 0; j < 20; ++j) {
      const std::string text = writer.write(writer.draw_expression(static_cast<int>(draw(random, 3))));
      const RowFilter filter = WhereExpression::parse(text)->bind(*table.batch->schema(), TableFormat::kParquet, "t").value();
      for (int group = 0; group < file->num_row_groups(); ++group) {
        RowGroupStatistics statistics = read_statistics(*file, group, names);
        cut_bounds(random, statistics);
        const auto rows = table.batch->Slice(group * rows_per_group, rows_per_group);
        ASSERT_EQ(statistics.num_rows, rows->num_rows());
        std::vector<uint8_t> keep;
        ASSERT_TRUE(filter.evaluate(*rows, keep).is_ok());
        const Reach got = filter.reach(statistics);
        const auto num_kept = std::count(keep.begin(), keep.end(), 1);
        ASSERT_TRUE(got != Reach::kNone || num_kept == 0) << text << "\n" << rows->ToString();
        ASSERT_TRUE(got != Reach::kAll || num_kept == rows->num_rows()) << text << "\n" << rows->ToString();
        ++counts[static_cast<size_t>(got)];
      }
    }
  }
  for (const int64_t count : counts) {
    EXPECT_GT(count, (counts[0] + counts[1] + counts[2]) / 20);  // Each answer is given, none by habit.
  }
}

// Whole numbers by their physical type, whose bounds are those of the digits without the point.
TEST(parquet_statistics, takes_no_bounds_of_decimals_stored_as_integers) {
  arrow::Decimal128Builder builder(arrow::decimal128(10, 2));
  ASSERT_TRUE(builder.Append(arrow::Decimal128(150)).ok());
  const auto schema = arrow::schema({arrow::field("x", arrow::decimal128(10, 2))});
  const auto table = arrow::Table::Make(schema, {builder.Finish().ValueOrDie()});
  const auto properties = parquet::WriterProperties::Builder().enable_store_decimal_as_integer()->build();
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 100, properties).ok());
  const auto file = parquet::ParquetFileReader::Open(std::make_shared<arrow::io::BufferReader>(sink->Finish().ValueOrDie()))->metadata();
  ASSERT_EQ(file->schema()->Column(0)->physical_type(), parquet::Type::INT64);
  EXPECT_FALSE(read_statistics(*file, 0, {"x"}).columns.at("x").min.has_value());
}

}  // namespace
}  // namespace darkroom
