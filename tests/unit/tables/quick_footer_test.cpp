#include "darkroom/tables/quick_footer.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "support/put_shard.h"
#include "support/rounds.h"

namespace darkroom {
namespace {

class QuickFooterTest : public ::testing::Test {
 protected:
  /// Writes a shard of `num_rows` rows with `num_columns` text columns.
  void write(const std::string& name, int64_t num_rows, int num_columns = 3) {
    arrow::FieldVector fields;
    for (int i = 0; i < num_columns; ++i) {
      fields.push_back(arrow::field(fmt::format("column{}", i), i % 2 == 0 ? arrow::utf8() : arrow::binary()));
    }
    const auto schema = arrow::schema(fields);
    arrow::ArrayVector columns;
    for (const auto& field : fields) {
      const auto builder = *arrow::MakeBuilder(field->type());
      for (int64_t row = 0; row < num_rows; ++row) {
        ASSERT_TRUE(static_cast<arrow::BinaryBuilder&>(*builder).Append(fmt::format("value {}", row)).ok());
      }
      columns.push_back(*builder->Finish());
    }
    const auto written = put_shard(files_, "d", name, *arrow::RecordBatch::Make(schema, num_rows, columns), {}, {.row_group_bytes = 512});
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  }
  ObjectTail tail(const std::string& name, int64_t num_bytes = kPlanningTailBytes) { return *store_->read_tail("d/" + name, num_bytes); }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
};

TEST_F(QuickFooterTest, agrees_with_the_full_reader) {
  for (const int64_t num_rows : {0, 1, 2, 63, 64, 65, 300}) {
    const std::string name = fmt::format("{}.parquet", num_rows);
    write(name, num_rows);
    const ObjectTail end = tail(name);
    const auto footer = read_quick_footer(end);
    ASSERT_TRUE(footer.has_value()) << num_rows;
    EXPECT_EQ(footer->num_rows, num_rows);
    EXPECT_EQ(footer->num_rows, read_footer(files_, "d/" + name)->num_rows);
  }
}

TEST_F(QuickFooterTest, equal_columns_have_equal_schema_bytes) {
  write("a.parquet", 3);
  write("b.parquet", 200);
  write("c.parquet", 3, 4);
  const ObjectTail a = tail("a.parquet"), b = tail("b.parquet"), c = tail("c.parquet");
  EXPECT_EQ(read_quick_footer(a)->schema, read_quick_footer(b)->schema);
  EXPECT_NE(read_quick_footer(a)->schema, read_quick_footer(c)->schema);
}

TEST_F(QuickFooterTest, columns_that_differ_in_arrow_alone_have_other_arrow_schemas) {
  for (const auto& [name, type] : {std::pair{"a.parquet", arrow::binary()}, {"b.parquet", arrow::large_binary()}}) {
    const auto schema = arrow::schema({arrow::field("column", type)});
    const auto builder = *arrow::MakeBuilder(type);
    ASSERT_TRUE(builder->AppendNull().ok());
    const auto rows = arrow::RecordBatch::Make(schema, 1, {*builder->Finish()});
    ASSERT_TRUE(put_shard(files_, "d", name, *rows, {{"other key", "other value"}}).is_ok());
  }
  const ObjectTail a = tail("a.parquet"), b = tail("b.parquet");
  EXPECT_EQ(read_quick_footer(a)->schema, read_quick_footer(b)->schema);
  EXPECT_NE(read_quick_footer(a)->arrow_schema, read_quick_footer(b)->arrow_schema);
  EXPECT_FALSE(read_quick_footer(a)->arrow_schema.empty());
}

TEST_F(QuickFooterTest, a_footer_longer_than_the_tail_is_left_to_the_full_reader) {
  write("a.parquet", 20, 17);
  const ObjectTail whole = tail("a.parquet");
  uint32_t num_thrift = 0;
  std::memcpy(&num_thrift, whole.bytes.data() + whole.bytes.size() - 8, 4);
  EXPECT_TRUE(read_quick_footer(tail("a.parquet", num_thrift + 8)).has_value());
  EXPECT_FALSE(read_quick_footer(tail("a.parquet", num_thrift + 7)).has_value());
}

TEST_F(QuickFooterTest, the_full_reader_takes_footers_of_a_store_that_are_longer_than_its_first_look) {
  for (const int num_columns : {3, 1500}) {
    const std::string name = fmt::format("{}.parquet", num_columns);
    write(name, 2, num_columns);
    const auto footer = read_footer(Location{.store = store_.get(), .path = "d/" + name});
    ASSERT_TRUE(footer.is_ok()) << footer.status().to_string();
    EXPECT_EQ(footer->file_bytes - footer->content_bytes > kPlanningTailBytes, num_columns == 1500);
    const auto want = read_footer(files_, "d/" + name);
    ASSERT_TRUE(want.is_ok()) << want.status().to_string();
    EXPECT_EQ(footer->key_values, want->key_values);
    EXPECT_EQ(footer->content_bytes, want->content_bytes);
    EXPECT_EQ(footer->file_bytes, want->file_bytes);
    EXPECT_TRUE(footer->schema->Equals(*want->schema));
  }
}

TEST_F(QuickFooterTest, what_is_no_parquet_gives_nothing) {
  for (const std::string& bytes :
       {std::string(), std::string("PAR1"), std::string("PAR1PAR1"), std::string("\0\0\0\0PAR1", 8),
        std::string("PAR1\xFF\xFF\xFF\xFFPAR1"), std::string("PAR1\x01\0\0\0PAR1", 12), std::string(1000, 'x')}) {
    EXPECT_FALSE(read_quick_footer({.size_bytes = static_cast<int64_t>(bytes.size()), .bytes = bytes}).has_value()) << bytes;
  }
  write("a.parquet", 5);
  ObjectTail encrypted = tail("a.parquet");
  encrypted.bytes.back() = 'E';
  EXPECT_FALSE(read_quick_footer(encrypted).has_value());
}

/// Where the name of the hash itself is changed, nobody can tell it from another program's footer.
TEST_F(QuickFooterTest, a_changed_footer_of_ours_is_taken_only_where_the_full_reader_takes_it) {
  write("a.parquet", 5);
  const ObjectTail whole = tail("a.parquet");
  uint32_t num_thrift = 0;
  std::memcpy(&num_thrift, whole.bytes.data() + whole.bytes.size() - 8, 4);
  ASSERT_EQ(whole.size_bytes, static_cast<int64_t>(whole.bytes.size())) << "the tail is the file";
  size_t num_taken = 0;
  for (size_t i = whole.bytes.size() - 8 - num_thrift; i < whole.bytes.size() - 8; ++i) {
    ObjectTail changed = whole;
    changed.bytes[i] = static_cast<char>(changed.bytes[i] ^ 1);
    if (const auto quick = read_quick_footer(changed)) {
      ++num_taken;
      ASSERT_TRUE(write_file_atomic(files_, "d/b.parquet", changed.bytes).is_ok());
      const auto full = read_footer(files_, "d/b.parquet");
      ASSERT_TRUE(full.is_ok()) << i << ": " << full.status().to_string();
      EXPECT_EQ(quick->num_rows, full->num_rows) << i;
    }
  }
  EXPECT_LE(num_taken, std::strlen(kFooterHashKey));
}

/// A number of rows that hostile bytes name is accepted only from a well-formed beginning; mostly this must not crash, hang or read
/// outside (run under the sanitizers).
TEST_F(QuickFooterTest, takes_any_bytes) {
  write("a.parquet", 70, 5);
  const ObjectTail whole = tail("a.parquet");
  uint32_t num_thrift = 0;
  std::memcpy(&num_thrift, whole.bytes.data() + whole.bytes.size() - 8, 4);
  const std::string thrift = whole.bytes.substr(whole.bytes.size() - 8 - num_thrift, num_thrift);
  std::mt19937_64 random(7);
  for (int64_t round = 0; round < rounds(200'000); ++round) {
    std::string mutated = round % 4 == 0 ? std::string() : thrift.substr(0, random() % (thrift.size() + 1));
    for (uint64_t i = 0, count = random() % 8; i < count; ++i) {
      if (mutated.empty() || random() % 3 == 0) {
        mutated.insert(mutated.begin() + static_cast<std::ptrdiff_t>(random() % (mutated.size() + 1)), static_cast<char>(random()));
      } else {
        mutated[random() % mutated.size()] = static_cast<char>(random());
      }
    }
    std::string bytes = "PAR1" + mutated;
    const auto length = static_cast<uint32_t>(random() % 16 == 0 ? random() : mutated.size());
    bytes.append(reinterpret_cast<const char*>(&length), 4).append("PAR1");
    const ObjectTail end{.size_bytes = static_cast<int64_t>(bytes.size()), .bytes = bytes};
    if (const auto footer = read_quick_footer(end)) {
      EXPECT_GE(footer->num_rows, 0);
      EXPECT_GE(footer->schema.data(), end.bytes.data());
      EXPECT_LE(footer->schema.data() + footer->schema.size(), end.bytes.data() + end.bytes.size());
    }
  }
}

TEST_F(QuickFooterTest, a_list_of_endless_length_ends_with_the_bytes) {
  // Field 1: i32. Field 2: a list of 2^63 truth values, structs, or empty maps.
  for (const char element : {'\x01', '\x0C', '\x0B', '\x00'}) {
    std::string thrift = {0x15, 0x02, 0x19, static_cast<char>(0xF0 | element)};
    thrift.append(9, '\xFF').append(1, '\x01').append(64, '\0');
    const auto length = static_cast<uint32_t>(thrift.size());
    std::string bytes = "PAR1" + thrift;
    bytes.append(reinterpret_cast<const char*>(&length), 4).append("PAR1");
    EXPECT_FALSE(read_quick_footer({.size_bytes = static_cast<int64_t>(bytes.size()), .bytes = bytes}).has_value());
  }
}

}  // namespace
}  // namespace darkroom
