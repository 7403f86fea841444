#include "darkroom/tables/verify_shard.h"

#include <arrow/io/memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <algorithm>
#include <string>
#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/table_reader.h"
#include "support/shard_rows.h"
#include "support/source_path.h"
#include "table_rows.h"
#include "tables/footer_hash.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::string read_golden(const std::string& name) { return read_file(local_files(), source_path("tests/golden/tables/" + name)).value(); }

StatusCode verify_bytes(const std::string& bytes) {
  MemoryFileSystem files;
  EXPECT_TRUE(put_file(files, "shard.parquet", bytes).is_ok());
  return verify_shard(files, "shard.parquet").code();
}

/// `bytes` with `from` replaced by `to` in the footer, and the footer's own hash set again.
std::string with_footer_text(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  uint32_t thrift_bytes = 0;
  std::copy_n(bytes.end() - 8, 4, reinterpret_cast<char*>(&thrift_bytes));
  const size_t begin = bytes.size() - 8 - thrift_bytes;
  std::string thrift = bytes.substr(begin, thrift_bytes);
  const size_t place = thrift.find(from);
  EXPECT_NE(place, std::string::npos);
  thrift.replace(place, to.size(), to);
  const size_t hash = find_footer_hash(thrift).value();
  thrift.replace(hash, 64, hash_footer(thrift, hash));
  return bytes.replace(begin, thrift_bytes, thrift);
}

TEST(VerifyShard, knows_both_versions_of_the_format) {
  for (const char* name : {"shard_v1.parquet", "shard_v2.parquet"}) {
    EXPECT_EQ(verify_bytes(read_golden(name)), StatusCode::kOk) << name;
    MemoryFileSystem files;
    ASSERT_TRUE(put_file(files, name, read_golden(name)).is_ok());
    auto table = open_table(files, name).value();
    EXPECT_TRUE(read_range(*table, 0, 12).value()->Equals(*rows_with_images(0, 12))) << name;
  }
}

TEST(VerifyShard, notices_every_flipped_byte_of_both_versions) {
  for (const char* name : {"shard_v1.parquet", "shard_v2.parquet"}) {
    const std::string bytes = read_golden(name);
    const CounterRandom random(3, Purpose::kSelect, 0, name);
    // Page headers, levels and the footer lie within what is small: every one of their bytes, and of the pictures every 97th.
    for (size_t place = 0; place<bytes.size(); place += place> 200 && place + 3000 < bytes.size() ? 97 : 1) {
      std::string damaged = bytes;
      damaged[place] = static_cast<char>(damaged[place] ^ static_cast<char>(1 << random.below(place, 8)));
      EXPECT_EQ(verify_bytes(damaged), StatusCode::kCorruptData) << name << " at " << place << " of " << bytes.size();
    }
  }
}

TEST(VerifyShard, notices_seeded_flips_over_a_shard_of_several_row_groups) {
  MemoryFileSystem files;
  const auto store = make_posix_store(files, "memory");
  const FinishedShard shard = stream_rows(store->begin_object("out", "part").value(), 300, 50, {.row_group_bytes = 300'000}).value();
  ASSERT_TRUE(shard.object->publish().is_ok());
  const std::string bytes = read_file(files, "out/part").value();
  const CounterRandom random(4, Purpose::kSelect, 0, "flips");
  for (uint64_t trial = 0; trial < 200; ++trial) {
    std::string damaged = bytes;
    const uint32_t place = random.below(2 * trial, static_cast<uint32_t>(bytes.size()));
    if (trial % 4 == 0) {
      damaged.resize(place);
    } else {
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << random.below(2 * trial + 1, 8)));
    }
    EXPECT_EQ(verify_bytes(damaged), StatusCode::kCorruptData) << "trial " << trial << " at " << place;
  }
}

TEST(VerifyShard, reading_notices_a_flip_in_a_page_of_ours) {
  MemoryFileSystem files;
  const std::string bytes = read_golden("shard_v2.parquet");
  for (const size_t place : {size_t{60}, size_t{1000}, size_t{5000}}) {
    std::string damaged = bytes;
    damaged[place] = static_cast<char>(damaged[place] ^ 4);
    ASSERT_TRUE(put_file(files, "damaged.parquet", damaged).is_ok());
    auto table = open_table(files, "damaged.parquet").value();
    EXPECT_EQ(read_range(*table, 0, 12).status().code(), StatusCode::kCorruptData) << place;
  }
}

TEST(VerifyShard, refuses_what_is_no_shard_of_ours) {
  EXPECT_EQ(verify_bytes("PAR1 is not enough PAR1"), StatusCode::kCorruptData);
  MemoryFileSystem files;
  EXPECT_EQ(verify_shard(files, "none.parquet").code(), StatusCode::kNotFound);
}

TEST(VerifyShard, what_another_program_made_of_a_shard_has_no_record) {
  MemoryFileSystem files;
  const auto pairs = arrow::key_value_metadata({kShardKey, kFooterHashKey}, {R"({"content_hash":"xxh3-128:0"})", std::string(64, 'a')});
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("n", arrow::int32())}, pairs), {integers({1})});
  const auto with_pairs = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ASSERT_TRUE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 10, parquet::default_writer_properties(), with_pairs).ok());
  ASSERT_TRUE(put_file(files, "rewritten.parquet", sink->Finish().ValueOrDie()->ToString()).is_ok());
  const Status status = verify_shard(files, "rewritten.parquet");
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("no record of a darkroom shard"));
}

TEST(VerifyShard, refuses_a_hash_of_a_kind_that_it_does_not_know) {
  MemoryFileSystem files;
  const std::string bytes = read_golden("shard_v2.parquet");
  EXPECT_EQ(verify_bytes(with_footer_text(bytes, "\"item\":42", "\"item\":43")), StatusCode::kOk);
  ASSERT_TRUE(put_file(files, "newer.parquet", with_footer_text(bytes, "xxh3-128:", "xxh9-128:")).is_ok());
  const Status status = verify_shard(files, "newer.parquet");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("newer.parquet xxh9-128:"));
  EXPECT_EQ(verify_bytes(with_footer_text(bytes, "xxh3-128:", "xxh3-1280")), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace darkroom
