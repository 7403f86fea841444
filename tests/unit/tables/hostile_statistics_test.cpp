#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/memory.h>
#include <arrow/table.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>

#include <cstring>
#include <string>
#include <string_view>

#include "darkroom/tables/statistics_filter.h"
#include "tables/parquet_statistics.h"

namespace darkroom {
namespace {

/// A Parquet file of one column x.
std::string file_of_one_column(const std::shared_ptr<arrow::Array>& values) {
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("x", values->type())}), {values});
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  EXPECT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink).ok());
  return sink->Finish().ValueOrDie()->ToString();
}

template <typename Builder, typename Value>
std::string file_of_values(const std::vector<Value>& values) {
  Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return file_of_one_column(builder.Finish().ValueOrDie());
}

template <typename Value>
std::string little_endian(Value value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

/// The file with a part of its footer, which stands there once, replaced.
std::string with_footer_part(const std::string& file, std::string_view part, std::string_view by) {
  constexpr size_t kTail = 8;  // The footer's length and the magic number.
  uint32_t length = 0;
  std::memcpy(&length, file.data() + file.size() - kTail, sizeof(length));
  const size_t begin = file.size() - kTail - length;
  std::string footer = file.substr(begin, length);
  const size_t place = footer.find(part);
  EXPECT_NE(place, std::string::npos);
  EXPECT_EQ(footer.find(part, place + 1), std::string::npos);
  footer.replace(place, part.size(), by);
  return file.substr(0, begin) + footer + little_endian(static_cast<uint32_t>(footer.size())) + "PAR1";
}

RowGroupStatistics statistics_of_x(const std::string& file) {
  const auto buffer = std::make_shared<arrow::Buffer>(file);
  return read_statistics(*parquet::ParquetFileReader::Open(std::make_shared<arrow::io::BufferReader>(buffer))->metadata(), 0, {"x"});
}

// Thrift's compact protocol: a byte holds how much greater than the last one a field's number is, and its type (5 a 32-bit number, 6 a
// 64-bit number, 8 bytes). In Statistics field 3 counts nulls, 5 and 6 are max_value and min_value; in ColumnMetaData field 1 is the type.

std::string bounds_of(int64_t min, int64_t max) {
  return std::string("\x16\x00\x28\x08", 4) + little_endian(max) + std::string("\x18\x08", 2) + little_endian(min);
}

TEST(hostile_statistics, a_chunk_of_another_type_than_its_column_has_no_bounds) {
  const std::string_view chunk_of_int64("\x1C\x15\x04", 3);  // A struct, its first field, a number: 2.
  const std::string wholes = file_of_values<arrow::Int64Builder, int64_t>({-5, 7});
  ASSERT_TRUE(statistics_of_x(wholes).columns.at("x").min.has_value());
  for (const char type : {'\x00', '\x02', '\x06', '\x08', '\x0A', '\x0C', '\x0E', '\x10', '\x7F'}) {
    const RowGroupStatistics group = statistics_of_x(with_footer_part(wholes, chunk_of_int64, std::string("\x1C\x15", 2) + type));
    EXPECT_EQ(group.num_rows, 2);
    const auto column = group.columns.find("x");
    EXPECT_FALSE(column != group.columns.end() && (column->second.min || column->second.max)) << int{type};
  }
  const std::string texts = file_of_values<arrow::StringBuilder, std::string>({"a text of eight bytes and more", "b"});
  const RowGroupStatistics group = statistics_of_x(with_footer_part(texts, "\x1C\x15\x0C", chunk_of_int64));
  const auto column = group.columns.find("x");
  EXPECT_FALSE(column != group.columns.end() && (column->second.min || column->second.max));
}

TEST(hostile_statistics, a_bound_alone_says_nothing) {
  const std::string file = file_of_values<arrow::Int64Builder, int64_t>({-5, 7});
  const std::string max_alone = std::string("\x16\x00\x28\x08", 4) + little_endian(int64_t{7}) + std::string("\x00", 1);
  const std::string min_alone = std::string("\x16\x00\x38\x08", 4) + little_endian(int64_t{-5});
  const std::string rest("\x11\x11\x00", 3);  // That both are exact, and the end.
  const ColumnStatistics max = statistics_of_x(with_footer_part(file, bounds_of(-5, 7) + rest, max_alone)).columns.at("x");
  EXPECT_FALSE(max.min.has_value());
  EXPECT_FALSE(max.max.has_value());
  const ColumnStatistics min = statistics_of_x(with_footer_part(file, bounds_of(-5, 7), min_alone)).columns.at("x");
  EXPECT_FALSE(min.min.has_value());
  EXPECT_FALSE(min.max.has_value());
}

TEST(hostile_statistics, without_a_count_of_nulls_there_may_be_any) {
  const std::string file = file_of_values<arrow::Int64Builder, int64_t>({-5, 7});
  const std::string without =
      std::string("\x38\x08", 2) + little_endian(int64_t{7}) + std::string("\x18\x08", 2) + little_endian(int64_t{-5});
  const ColumnStatistics column = statistics_of_x(with_footer_part(file, bounds_of(-5, 7), without)).columns.at("x");
  EXPECT_FALSE(column.num_nulls.has_value());
  EXPECT_EQ(column.min, BoundValue(int64_t{-5}));
}

TEST(hostile_statistics, bounds_of_another_length_than_their_type_has_say_nothing) {
  const std::string file = file_of_values<arrow::Int64Builder, int64_t>({-5, 7});
  for (const size_t size : {0, 1, 4, 7}) {
    const std::string max = std::string("\x28", 1) + static_cast<char>(size) + little_endian(int64_t{7}).substr(0, size);
    const std::string bounds = std::string("\x16\x00", 2) + max + std::string("\x18\x08", 2) + little_endian(int64_t{-5});
    const RowGroupStatistics group = statistics_of_x(with_footer_part(file, bounds_of(-5, 7), bounds));
    const auto column = group.columns.find("x");
    EXPECT_FALSE(column != group.columns.end() && (column->second.min || column->second.max)) << size;
  }
}

}  // namespace
}  // namespace darkroom
