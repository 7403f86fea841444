// MDS shards: written, read as tables, verified; and the record behind them.
#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/mds_writer.h"
#include "darkroom/tables/sealed_record.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/verify_shard.h"
#include "support/temporary_folder.h"
#include "table_rows.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<MdsColumn> kMdsColumns = {{"key", "str"}, {"width", "int"}, {"blob", "bytes"}, {"score", "float32"}};

struct MdsRow {
  std::string key;
  int64_t width = 0;
  std::string blob;
  float score = 0;
};

class MdsShard : public testing::Test {
 protected:
  /// Writes a shard and returns its bytes.
  std::string write(const std::vector<MdsRow>& rows, const KeyValues& pairs = {{kShardKey, "{\"item\":7}"}, {"more", "value"}}) {
    const auto store = make_posix_store(files_, "memory");
    auto object = store->begin_object("out", "part-000007.mds");
    EXPECT_TRUE(object.is_ok()) << object.status().to_string();
    MdsWriter writer(*std::move(object), kMdsColumns, *scratch_);
    for (const MdsRow& row : rows) {
      const std::vector<std::span<const std::byte>> values = {std::as_bytes(std::span(row.key)), std::as_bytes(std::span(&row.width, 1)),
                                                              std::as_bytes(std::span(row.blob)), std::as_bytes(std::span(&row.score, 1))};
      EXPECT_TRUE(writer.add(values).is_ok());
    }
    auto shard = writer.finish(pairs);
    EXPECT_TRUE(shard.is_ok()) << shard.status().to_string();
    EXPECT_EQ(shard->num_rows, static_cast<int64_t>(rows.size()));
    EXPECT_TRUE(shard->object->publish().is_ok());
    const std::string bytes = *read_file(files_, "out/part-000007.mds");
    EXPECT_EQ(shard->num_bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(files_.remove_file("out/part-000007.mds").is_ok());
    return bytes;
  }
  static std::vector<MdsRow> some_rows(int count) {
    std::vector<MdsRow> rows;
    for (int i = 0; i < count; ++i) {
      rows.push_back({"key" + std::to_string(i), i * 3, std::string(static_cast<size_t>(i % 5), static_cast<char>(i)), i / 2.0F});
    }
    return rows;
  }

  TemporaryFolder folder_;
  MemoryFileSystem files_;
  std::unique_ptr<ScratchFiles> scratch_ = *ScratchFiles::open(folder_.path(), int64_t{1} << 30);
};

/// Numbers of 32 bits, little-endian.
std::string words(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return bytes;
}

TEST_F(MdsShard, bytes_are_those_of_the_published_format) {
  const std::string bytes = write({{"a", 5, "xyz", 0.5F}, {"", -1, "", 2.0F}});
  const std::string config =
      R"({"column_encodings":["bytes","str","float32","int"],"column_names":["blob","key","score","width"],)"
      R"("column_sizes":[null,null,4,8],"compression":null,"format":"mds","hashes":[],"size_limit":null,"version":2})";
  const auto head = static_cast<uint32_t>(16 + config.size());
  const std::string want = words({2, head, head + 24, head + 44}) + config + words({3, 1}) + "xyz" + "a" +
                           std::string("\x00\x00\x00\x3f", 4) + std::string("\x05\0\0\0\0\0\0\0", 8) + words({0, 0}) +
                           std::string("\x00\x00\x00\x40", 4) + std::string(8, '\xff');
  EXPECT_EQ(bytes.substr(0, want.size()), want);
  EXPECT_EQ(bytes.substr(want.size(), 10), "{\"darkroom");
  EXPECT_EQ(write({{"a", 5, "xyz", 0.5F}, {"", -1, "", 2.0F}}), bytes);
}

TEST_F(MdsShard, reads_back_as_a_table_whatever_the_batches) {
  const auto rows = some_rows(23);
  ASSERT_TRUE(put_file(files_, "part-000007.mds", write(rows)).is_ok());
  const auto table = open_table(files_, "part-000007.mds");
  ASSERT_TRUE(table.is_ok()) << table.status().to_string();
  EXPECT_EQ(*(*table)->num_rows(), 23);
  EXPECT_THAT((*table)->schema()->field_names(), ElementsAre("blob", "key", "score", "width"));
  for (const int64_t batch_bytes : {1, 60, 1 << 20}) {
    const auto range = (*table)->read_rows(2, 20, {"width", "key", "blob", "score"}, {.batch_bytes = batch_bytes});
    ASSERT_TRUE(range.is_ok());
    int64_t row = 2;
    while (const auto batch = *(*range)->next()) {
      ASSERT_TRUE(batch->ValidateFull().ok());
      for (int64_t i = 0; i < batch->num_rows(); ++i, ++row) {
        const MdsRow& want = rows[static_cast<size_t>(row)];
        EXPECT_EQ(static_cast<const arrow::Int64Array&>(*batch->column(0)).Value(i), want.width);
        EXPECT_EQ(static_cast<const arrow::StringArray&>(*batch->column(1)).GetString(i), want.key);
        EXPECT_EQ(static_cast<const arrow::BinaryArray&>(*batch->column(2)).GetString(i), want.blob);
        EXPECT_EQ(static_cast<const arrow::FloatArray&>(*batch->column(3)).Value(i), want.score);
      }
    }
    EXPECT_EQ(row, 22);
  }
  EXPECT_EQ((*table)->read_rows(0, 1, {"caption"}).status().code(), StatusCode::kNotFound);
}

TEST_F(MdsShard, the_footer_is_that_of_a_table_with_its_record) {
  ASSERT_TRUE(put_file(files_, "part-000007.mds", write(some_rows(300))).is_ok());
  const auto footer = read_footer(files_, "part-000007.mds");
  ASSERT_TRUE(footer.is_ok()) << footer.status().to_string();
  EXPECT_EQ(footer->num_rows, 300);
  ASSERT_EQ(footer->row_groups.size(), 2u);
  EXPECT_EQ(footer->row_groups[1].num_rows, 44);
  const auto record = nlohmann::json::parse(*footer->find(kShardKey));
  EXPECT_EQ(record["item"], 7);
  EXPECT_THAT(record["content_hash"].get<std::string>(), HasSubstr("xxh3-128:"));
  EXPECT_EQ(*footer->find("more"), "value");
  EXPECT_TRUE(verify_shard(files_, "part-000007.mds").is_ok());
  ASSERT_TRUE(put_file(files_, "renamed.mds", *read_file(files_, "part-000007.mds")).is_ok());
  EXPECT_TRUE(verify_shard(files_, "renamed.mds").is_ok());
}

TEST_F(MdsShard, a_shard_without_samples_is_a_table_without_rows) {
  ASSERT_TRUE(put_file(files_, "part-000000.mds", write({})).is_ok());
  const auto footer = read_footer(files_, "part-000000.mds");
  ASSERT_TRUE(footer.is_ok()) << footer.status().to_string();
  EXPECT_EQ(footer->num_rows, 0);
  const auto range = (*open_table(files_, "part-000000.mds"))->read_rows(0, 5, {});
  EXPECT_EQ(*(*range)->next(), nullptr);
  EXPECT_TRUE(verify_shard(files_, "part-000000.mds").is_ok());
}

TEST_F(MdsShard, every_flipped_byte_is_found) {
  const std::string bytes = write(some_rows(3));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    MemoryFileSystem files;
    ASSERT_TRUE(put_file(files, "part-000000.mds", damaged).is_ok());
    EXPECT_EQ(verify_shard(files, "part-000000.mds").code(), StatusCode::kCorruptData) << i;
  }
}

TEST_F(MdsShard, a_file_that_was_cut_anywhere_is_damaged) {
  const std::string bytes = write(some_rows(3));
  for (size_t size = 0; size < bytes.size(); ++size) {
    MemoryFileSystem files;
    ASSERT_TRUE(put_file(files, "part-000000.mds", bytes.substr(0, size)).is_ok());
    const auto footer = read_footer(files, "part-000000.mds");
    // At the end of its samples it is the whole shard of somebody else.
    EXPECT_TRUE(footer.status().code() == StatusCode::kCorruptData || footer->key_values.empty()) << size;
    EXPECT_EQ(verify_shard(files, "part-000000.mds").code(), StatusCode::kCorruptData) << size;
  }
}

TEST_F(MdsShard, hostile_heads_are_damage) {
  const std::string good = write(some_rows(3));
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"\"format\":\"mds\"", "\"format\":\"mdx\""}, {"[null,null,4,8]", "[null,null,8,4]"},  {"[null,null,4,8]", "[null,null,4,-"},
      {"[null,null,4,8]", "[null,4,8]    "},        {"[\"blob\",\"key\"", "[4,       \"ke"},
  };
  for (const auto& [from, to] : changes) {
    std::string bytes = good;
    const size_t place = bytes.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    bytes.replace(place, from.size(), to + std::string(from.size() - to.size(), ' '));
    MemoryFileSystem files;
    ASSERT_TRUE(put_file(files, "a.mds", bytes).is_ok());
    EXPECT_EQ(open_table(files, "a.mds").status().code(), StatusCode::kCorruptData) << to;
  }
  for (const uint32_t num_samples : {4U, 1000U, 0x7fffffffU, 0xffffffffU}) {
    std::string bytes = good;
    bytes.replace(0, 4, words({num_samples}));
    MemoryFileSystem files;
    ASSERT_TRUE(put_file(files, "a.mds", bytes).is_ok());
    EXPECT_EQ(open_table(files, "a.mds").status().code(), StatusCode::kCorruptData) << num_samples;
  }
}

TEST_F(MdsShard, another_version_is_refused) {
  std::string bytes = write(some_rows(3));
  bytes.replace(bytes.find("\"version\":2"), 11, "\"version\":1");
  ASSERT_TRUE(put_file(files_, "a.mds", bytes).is_ok());
  EXPECT_EQ(open_table(files_, "a.mds").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(MdsShard, a_sample_with_values_beyond_it_is_null_and_counted) {
  std::string bytes = write(some_rows(3));
  uint32_t first = 0;
  bytes.copy(reinterpret_cast<char*>(&first), sizeof first, 4);
  bytes.replace(first, 4, words({0xfffffff0U}));
  MemoryFileSystem files;
  ASSERT_TRUE(put_file(files, "a.mds", bytes).is_ok());
  const auto range = (*open_table(files, "a.mds"))->read_rows(0, 3, {});
  const auto batch = (*range)->next();
  ASSERT_TRUE(batch.is_ok()) << batch.status().to_string();
  EXPECT_EQ((*batch)->column(0)->null_count(), 1);
  EXPECT_TRUE((*batch)->column(0)->IsNull(0));
  EXPECT_EQ((*range)->num_malformed_rows(), 1);
}

TEST_F(MdsShard, gives_back_what_waits_in_the_scratch_files) {
  (void)write(some_rows(5));
  {
    const auto store = make_posix_store(files_, "memory");
    MdsWriter writer(*store->begin_object("out", "part-000001.mds"), {{"key", "str"}}, *scratch_);
    const std::string value = "abc";
    const std::vector<std::span<const std::byte>> values = {std::as_bytes(std::span(value))};
    ASSERT_TRUE(writer.add(values).is_ok());
  }
  const auto place = *scratch_->append(std::as_bytes(std::span("x", 1)));
  scratch_->free(place);
  EXPECT_EQ(*files_.exists("out/part-000001.mds"), false);
}

TEST(MdsIndex, leaves_out_shards_without_samples) {
  const std::vector<MdsShardEntry> shards = {{"part-000000.mds", 100, 3}, {"part-000001.mds", 50, 0}, {"part-000002.mds", 70, 2}};
  const auto index = nlohmann::json::parse(print_mds_index({{"key", "str"}, {"blob", "bytes"}, {"n", "int"}}, shards));
  EXPECT_EQ(index["version"], 2);
  ASSERT_EQ(index["shards"].size(), 2u);
  EXPECT_EQ(index["shards"][1], nlohmann::json::parse(R"({"column_encodings":["bytes","str","int"],"column_names":["blob","key","n"],
    "column_sizes":[null,null,8],"compression":null,"format":"mds","hashes":[],"raw_data":{"basename":"part-000002.mds","bytes":70,"hashes":{}},
    "samples":2,"size_limit":null,"version":2,"zip_data":null})"));
}

}  // namespace
}  // namespace darkroom
