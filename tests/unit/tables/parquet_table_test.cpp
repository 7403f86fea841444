#include <arrow/io/memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <cstring>

#include "darkroom/core/random.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/quick_footer.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"
#include "support/put_shard.h"
#include "support/source_path.h"
#include "table_rows.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A Parquet file as others write it.
std::string foreign_parquet(
    const std::shared_ptr<arrow::Table>& table, int64_t rows_per_group, bool checksums = false,
    const std::shared_ptr<parquet::ArrowWriterProperties>& arrow_properties = parquet::default_arrow_writer_properties()) {
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  auto properties = parquet::WriterProperties::Builder();
  if (checksums) {
    properties.enable_page_checksum();
  }
  EXPECT_TRUE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, rows_per_group, properties.build(), arrow_properties).ok());
  return sink->Finish().ValueOrDie()->ToString();
}

std::shared_ptr<arrow::Table> numbered_table(int num_rows) {
  std::vector<std::optional<std::string>> names;
  std::vector<int32_t> numbers;
  for (int row = 0; row < num_rows; ++row) {
    names.push_back("row " + std::to_string(row));
    numbers.push_back(row);
  }
  const auto schema = arrow::schema({arrow::field("name", arrow::utf8()), arrow::field("number", arrow::int32())});
  return arrow::Table::Make(schema, {strings(names), integers(numbers)});
}

class ParquetTables : public testing::Test {
 protected:
  std::unique_ptr<TableReader> open(const std::string& bytes) {
    EXPECT_TRUE(put_file(files_, "a.parquet", bytes).is_ok());
    auto table = open_table(files_, "a.parquet");
    EXPECT_TRUE(table.is_ok()) << table.status().to_string();
    return *std::move(table);
  }
  /// Reads all rows of damaged bytes; ok when nothing was noticed.
  Status read_damaged(const std::string& bytes) {
    EXPECT_TRUE(put_file(files_, "a.parquet", bytes).is_ok());
    DARKROOM_ASSIGN_OR_RETURN(auto table, open_table(files_, "a.parquet"));
    return read_range(*table, 0, 1 << 20).status();
  }
  MemoryFileSystem files_;
};

TEST_F(ParquetTables, every_range_holds_its_own_rows) {
  auto table = open(foreign_parquet(numbered_table(1000), 137));
  EXPECT_EQ(table->num_rows().value(), 1000);
  for (const int64_t first : {0, 1, 136, 137, 138, 500, 999, 1000, 5000}) {
    for (const int64_t count : {0, 1, 136, 137, 300, 5000}) {
      for (const int64_t batch_rows : {1, 100, 4096}) {
        const auto batch = read_range(*table, first, count, {"number"}, {.max_batch_rows = batch_rows}).value();
        const int64_t want = std::clamp<int64_t>(1000 - first, 0, count);
        ASSERT_EQ(batch == nullptr ? 0 : batch->num_rows(), want);
        for (int64_t row = 0; row < want; ++row) {
          ASSERT_EQ(static_cast<const arrow::Int32Array&>(*batch->column(0)).Value(row), first + row);
        }
      }
    }
  }
}

TEST_F(ParquetTables, gives_columns_in_the_order_that_was_asked) {
  auto table = open(foreign_parquet(numbered_table(3), 10));
  const auto batch = read_range(*table, 0, 3, {"number", "name"}).value();
  EXPECT_THAT(batch->schema()->field_names(), ElementsAre("number", "name"));
  EXPECT_THAT(texts(batch, "name"), ElementsAre("row 0", "row 1", "row 2"));
}

TEST_F(ParquetTables, reads_structs_as_hugging_face_writes_images) {
  const auto image =
      arrow::StructArray::Make({blobs({"abc", "de"}), strings({"x.png", std::nullopt})}, std::vector<std::string>{"bytes", "path"})
          .ValueOrDie();
  const auto schema = arrow::schema({arrow::field("n", arrow::int32()), arrow::field("image", image->type())});
  auto table = open(foreign_parquet(arrow::Table::Make(schema, {integers({1, 2}), image}), 10));
  const auto batch = read_range(*table, 0, 2, {"image"}).value();
  EXPECT_TRUE(batch->column(0)->Equals(image)) << batch->column(0)->ToString();
}

TEST_F(ParquetTables, text_that_is_not_utf8_comes_through) {
  const auto schema = arrow::schema({arrow::field("caption", arrow::utf8())});
  auto table = open(foreign_parquet(arrow::Table::Make(schema, {strings({"caf\xe9", "ok"})}), 10));
  EXPECT_THAT(texts(read_range(*table, 0, 2).value(), "caption"), ElementsAre("caf\xe9", "ok"));
}

TEST_F(ParquetTables, categories_and_maps_that_are_not_utf8_come_through) {
  arrow::StringDictionary32Builder categories;  // Arrow casts other indices, and refuses text that is no UTF-8 then.
  const auto keys = std::make_shared<arrow::StringBuilder>(), items = std::make_shared<arrow::StringBuilder>();
  arrow::MapBuilder maps(arrow::default_memory_pool(), keys, items);
  for (const char* text : {"caf\xe9", "ok"}) {
    ASSERT_TRUE(categories.Append(text).ok());
    ASSERT_TRUE(maps.Append().ok());
    ASSERT_TRUE((keys->Append(text) & items->Append(text)).ok());
  }
  const auto category = *categories.Finish(), map = *maps.Finish();
  const auto schema = arrow::schema({arrow::field("category", category->type()), arrow::field("map", map->type())});
  const auto with_types = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  auto table = open(foreign_parquet(arrow::Table::Make(schema, {category, map}), 10, false, with_types));
  const auto rows = read_range(*table, 0, 2);
  ASSERT_TRUE(rows.is_ok()) << rows.status().to_string();
  ASSERT_EQ((*rows)->column(0)->type_id(), arrow::Type::DICTIONARY);
  ASSERT_EQ((*rows)->column(1)->type_id(), arrow::Type::MAP);
  const auto& read = static_cast<const arrow::DictionaryArray&>(*(*rows)->column(0));
  EXPECT_EQ(static_cast<const arrow::StringArray&>(*read.dictionary()).GetString(read.GetValueIndex(0)), "caf\xe9");
  const auto& pairs = static_cast<const arrow::MapArray&>(*(*rows)->column(1));
  EXPECT_EQ(static_cast<const arrow::StringArray&>(*pairs.keys()).GetString(0), "caf\xe9");
  EXPECT_EQ(static_cast<const arrow::StringArray&>(*pairs.items()).GetString(1), "ok");
}

TEST_F(ParquetTables, batches_keep_to_their_bytes) {
  std::vector<std::string> images(100, std::string(10'000, 'x'));
  const auto schema = arrow::schema({arrow::field("image", arrow::binary())});
  auto properties = parquet::WriterProperties::Builder().disable_dictionary()->build();
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  ASSERT_TRUE(
      parquet::arrow::WriteTable(*arrow::Table::Make(schema, {blobs(images)}), arrow::default_memory_pool(), sink, 100, properties).ok());
  auto table = open(sink->Finish().ValueOrDie()->ToString());
  auto range = table->read_rows(0, 100, {}, {.batch_bytes = 50'000}).value();
  EXPECT_LE(range->next().value()->num_rows(), 5);
}

TEST_F(ParquetTables, a_missing_column_is_named_with_those_that_exist) {
  auto table = open(foreign_parquet(numbered_table(3), 10));
  const Status status = table->read_rows(0, 1, {"number", "image"}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("a.parquet"), HasSubstr("\"image\""), HasSubstr("name, number")));
}

TEST_F(ParquetTables, refuses_truncated_and_foreign_bytes) {
  const std::string bytes = foreign_parquet(numbered_table(100), 50);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{11}, size_t{12}, bytes.size() / 2, bytes.size() - 1}) {
    const Status status = read_damaged(bytes.substr(0, size));
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << size;
    EXPECT_THAT(status.message(), HasSubstr("a.parquet"));
  }
  EXPECT_EQ(read_damaged("PAR1" + std::string("\xff\xff\xff\x7f", 4) + "PAR1").code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_damaged("PAR1garbage" + std::string("\x07\0\0\0", 4) + "PAR1").code(), StatusCode::kCorruptData);
}

TEST_F(ParquetTables, a_footer_is_as_long_as_the_file_at_most) {
  const std::string body(100, 'x');  // No Thrift, whichever part of it is read.
  const auto read_with_length = [&](size_t thrift_bytes) {
    const char length[] = {static_cast<char>(thrift_bytes), 0, 0, 0};
    return read_damaged("PAR1" + body + std::string(length, sizeof length) + "PAR1").message();
  };
  EXPECT_THAT(read_with_length(body.size()), Not(HasSubstr("the footer's length is impossible")));
  for (const size_t excess : {1, 4, 5, 8, 12, 20}) {
    EXPECT_THAT(read_with_length(body.size() + excess), HasSubstr("the footer's length is impossible")) << excess;
  }
}

TEST_F(ParquetTables, notices_every_flip_in_the_pages_of_our_shards) {
  const auto schema = arrow::schema({arrow::field("name", arrow::utf8()), arrow::field("image", arrow::binary())});
  std::vector<std::optional<std::string>> names(50, "a name");
  const std::vector<std::string> images(50, std::string(400, 'x'));
  const auto rows = arrow::RecordBatch::Make(schema, 50, {strings(names), blobs(images)});
  ASSERT_TRUE(put_shard(files_, "out", "part.parquet", *rows).is_ok());
  const std::string bytes = read_file(files_, "out/part.parquet").value();
  const size_t image_begin = bytes.find("xxxx");
  const size_t image_end = bytes.rfind("xxxx") + 4;
  ASSERT_GT(image_end - image_begin, 20'000u);
  const CounterRandom random(2, Purpose::kSelect, 0, "flips");
  for (uint64_t trial = 0; trial < 500; ++trial) {
    std::string damaged = bytes;
    const size_t place = image_begin + random.below(2 * trial, static_cast<uint32_t>(image_end - image_begin));
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << random.below(2 * trial + 1, 8)));
    EXPECT_EQ(read_damaged(damaged).code(), StatusCode::kCorruptData) << place;
  }
}

/// What pyarrow makes of a shard of ours: its footer carries our keys along, and has ARROW:schema or not.
std::string carrying_parquet(const std::shared_ptr<arrow::Table>& table, const std::shared_ptr<const arrow::KeyValueMetadata>& pairs,
                             bool with_arrow_schema) {
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  parquet::ArrowWriterProperties::Builder properties;
  if (with_arrow_schema) {
    properties.store_schema();
  }
  const auto writer = parquet::arrow::FileWriter::Open(*table->schema(), arrow::default_memory_pool(), sink,
                                                       parquet::default_writer_properties(), properties.build())
                          .ValueOrDie();
  EXPECT_TRUE(writer->WriteTable(*table, 10).ok());
  EXPECT_TRUE(writer->AddKeyValueMetadata(pairs).ok());
  EXPECT_TRUE(writer->Close().ok());
  return sink->Finish().ValueOrDie()->ToString();
}

TEST_F(ParquetTables, a_hash_that_another_program_carried_along_is_none_of_its_files) {
  const auto pairs = arrow::key_value_metadata({kShardKey, kFooterHashKey, "note"}, {"{}", std::string(64, 'a'), "kept"});
  for (const bool with_arrow_schema : {false, true}) {
    auto table = open(carrying_parquet(numbered_table(3), pairs, with_arrow_schema));
    EXPECT_EQ((*read_range(*table, 0, 9))->num_rows(), 3);
    const TableFooter footer = *read_footer(files_, "a.parquet");
    EXPECT_EQ(footer.find(kShardKey), nullptr) << "a record of another file";
    EXPECT_EQ(footer.find(kFooterHashKey), nullptr);
    EXPECT_EQ(*footer.find("note"), "kept");
    const std::string bytes = *read_file(files_, "a.parquet");
    const auto quick = read_quick_footer({.size_bytes = static_cast<int64_t>(bytes.size()), .bytes = bytes});
    ASSERT_TRUE(quick.has_value());
    EXPECT_EQ(quick->num_rows, 3);
  }
}

TEST_F(ParquetTables, a_flip_behind_the_hash_is_noticed_also_in_the_name_of_our_program) {
  for (const char* name : {"shard_v1.parquet", "shard_v2.parquet"}) {
    const std::string bytes = *read_file(local_files(), source_path(std::string("tests/golden/tables/") + name));
    for (size_t place = bytes.rfind(kFooterHashKey) + std::strlen(kFooterHashKey); place < bytes.size(); ++place) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = bytes;
        damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
        ASSERT_TRUE(put_file(files_, "a.parquet", damaged).is_ok());
        EXPECT_EQ(read_footer(files_, "a.parquet").status().code(), StatusCode::kCorruptData) << name << " " << place << " bit " << bit;
      }
    }
  }
}

TEST_F(ParquetTables, survives_any_flip_in_files_without_checksums) {
  const std::string bytes = foreign_parquet(numbered_table(200), 70);
  const CounterRandom random(3, Purpose::kSelect, 0, "flips");
  for (uint64_t trial = 0; trial < 1000; ++trial) {
    std::string damaged = bytes;
    const size_t place = random.below(2 * trial, static_cast<uint32_t>(bytes.size()));
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << random.below(2 * trial + 1, 8)));
    const Status status = read_damaged(damaged);  // Some flips change only a value; none may crash.
    EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kCorruptData || status.code() == StatusCode::kResourceExhausted)
        << status.to_string();
  }
}

}  // namespace
}  // namespace darkroom
