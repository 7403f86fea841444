#include "darkroom/tables/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "darkroom/core/random.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/tables/table_reader.h"
#include "table_rows.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::shared_ptr<arrow::Schema> kSchema =
    arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary()),
                   arrow::field("width", arrow::int32())});

std::string noise(int row, size_t size) {
  std::string bytes(size, '\0');
  const CounterRandom random(7, Purpose::kSelect, 0, std::to_string(row));
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(random.bits(i));
  }
  return bytes;
}

std::shared_ptr<arrow::RecordBatch> rows(int first, int count) {
  std::vector<std::optional<std::string>> keys;
  std::vector<std::optional<std::string>> captions;
  std::vector<std::string> images;
  std::vector<int32_t> widths;
  for (int row = first; row < first + count; ++row) {
    keys.push_back(fmt::format("{:012}", row));
    captions.push_back(row % 5 == 0 ? std::nullopt : std::optional(fmt::format("caption {}", row)));
    images.push_back(noise(row, static_cast<size_t>(row * 37 % 3000)));
    widths.push_back(row);
  }
  return arrow::RecordBatch::Make(kSchema, count, {strings(keys), strings(captions), blobs(images), integers(widths)});
}

/// Writes rows 0..num_rows-1 in batches of `step`.
Result<ShardRecord> write_shard(FileSystem& files, const std::string& name, int num_rows, int step, const ShardOptions& options = {},
                                const KeyValues& footer = {{kShardKey, "{\"item\":42}"}, {"other", "value"}}) {
  DARKROOM_ASSIGN_OR_RETURN(auto writer, ShardWriter::open(files, "out", name, kSchema, options));
  for (int first = 0; first < num_rows; first += step) {
    DARKROOM_RETURN_IF_ERROR(writer->write(*rows(first, std::min(step, num_rows - first))));
  }
  return writer->finish(footer);
}

TEST(ShardWriter, reads_back_every_row_with_its_record) {
  MemoryFileSystem files;
  const ShardRecord record = write_shard(files, "part.parquet", 1000, 64, {.row_group_bytes = 200'000}).value();
  EXPECT_EQ(record.outcome, PublishOutcome::kPublished);
  EXPECT_EQ(record.path, "out/part.parquet");
  EXPECT_EQ(record.num_rows, 1000);
  EXPECT_EQ(record.num_bytes, files.stat(record.path)->size_bytes);

  auto table = open_table(files, record.path).value();
  EXPECT_EQ(table->num_rows().value(), 1000);
  const auto batch = read_range(*table, 0, 1000).value();
  EXPECT_TRUE(batch->Equals(*rows(0, 1000))) << batch->schema()->ToString();
}

TEST(ShardWriter, the_footer_tells_rows_groups_and_record) {
  MemoryFileSystem files;
  const ShardRecord record = write_shard(files, "part.parquet", 1000, 64, {.row_group_bytes = 200'000}).value();
  const TableFooter footer = read_footer(files, record.path).value();
  EXPECT_EQ(footer.num_rows, 1000);
  ASSERT_GT(footer.row_groups.size(), 3u);
  for (const RowGroupInfo& group : footer.row_groups) {
    EXPECT_LT(group.num_bytes, 250'000);
  }
  EXPECT_TRUE(footer.schema->Equals(*kSchema, false));
  EXPECT_EQ(*footer.find("other"), "value");
  EXPECT_EQ(footer.find("absent"), nullptr);
  const auto shard = nlohmann::json::parse(*footer.find(kShardKey));
  EXPECT_EQ(shard["item"], 42);
  const std::string bytes = read_file(files, record.path).value();
  EXPECT_EQ(shard["content_hash"], sha256_hex(bytes.substr(0, static_cast<size_t>(footer.content_bytes))));
  EXPECT_EQ(shard["content_hash"], record.content_hash);
  EXPECT_TRUE(verify_shard(files, record.path).is_ok());
}

TEST(ShardWriter, gives_the_same_bytes_however_rows_come_in) {
  MemoryFileSystem files;
  const ShardOptions options{.row_group_bytes = 100'000};
  ASSERT_TRUE(write_shard(files, "whole", 503, 503, options).is_ok());
  const std::string want = read_file(files, "out/whole").value();
  for (const int step : {1, 7, 64, 502}) {
    const std::string name = "step-" + std::to_string(step);
    ASSERT_TRUE(write_shard(files, name, 503, step, options).is_ok());
    EXPECT_EQ(read_file(files, "out/" + name).value(), want) << step;
  }
}

TEST(ShardWriter, an_empty_shard_is_a_table_without_rows) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_shard(files, "part.parquet", 0, 1, {}, {}).is_ok());
  auto table = open_table(files, "out/part.parquet").value();
  EXPECT_EQ(table->num_rows().value(), 0);
  EXPECT_EQ(read_range(*table, 0, 5).value(), nullptr);
  EXPECT_TRUE(verify_shard(files, "out/part.parquet").is_ok());
}

TEST(ShardWriter, the_second_writer_of_a_name_finds_it_there) {
  MemoryFileSystem files;
  EXPECT_EQ(write_shard(files, "part", 10, 10)->outcome, PublishOutcome::kPublished);
  EXPECT_EQ(write_shard(files, "part", 20, 10)->outcome, PublishOutcome::kAlreadyThere);
  EXPECT_EQ(read_footer(files, "out/part")->num_rows, 10);
}

TEST(ShardWriter, publishes_nothing_when_it_is_given_up) {
  MemoryFileSystem files;
  {
    auto writer = ShardWriter::open(files, "out", "part", kSchema).value();
    ASSERT_TRUE(writer->write(*rows(0, 10)).is_ok());
  }
  EXPECT_TRUE(files.list_tree("out")->empty());
}

TEST(ShardWriter, refuses_wrong_options) {
  MemoryFileSystem files;
  EXPECT_EQ(ShardWriter::open(files, "out", "a", kSchema, {.row_group_bytes = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ShardWriter::open(files, "out", "a", kSchema, {.codecs = {{"none", ColumnCodec::kNone}}}).status().code(),
            StatusCode::kInvalidArgument);
  const auto doubled = arrow::schema({arrow::field("a", arrow::utf8()), arrow::field("a", arrow::utf8())});
  EXPECT_EQ(ShardWriter::open(files, "out", "a", doubled).status().code(), StatusCode::kInvalidArgument);
  auto writer = ShardWriter::open(files, "out", "a", arrow::schema({arrow::field("a", arrow::utf8())})).value();
  EXPECT_THROW((void)writer->write(*rows(0, 1)), CheckFailure);
}

TEST(ShardWriter, no_disk_fault_publishes_a_bad_shard) {
  MemoryFileSystem counted_memory;
  FaultInjectingFileSystem counted(counted_memory);
  const ShardOptions options{.row_group_bytes = 1'000};
  ASSERT_TRUE(write_shard(counted, "part", 30, 10, options).is_ok());
  const int64_t num_calls = counted.num_calls();
  ASSERT_GT(num_calls, 50);
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite}) {
    for (int64_t call = 0; call < num_calls; ++call) {
      SCOPED_TRACE(fmt::format("call {} of {}, fault {}", call, num_calls, static_cast<int>(fault)));
      MemoryFileSystem memory;
      FaultInjectingFileSystem files(memory);
      files.fail_call(call, fault);
      const Status status = write_shard(files, "part", 30, 10, options).status();
      EXPECT_EQ(status.code(), fault == Fault::kInputOutput ? StatusCode::kUnavailable : StatusCode::kResourceExhausted)
          << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("out"));
      files.heal();
      if (memory.exists("out/part").value()) {
        EXPECT_TRUE(verify_shard(memory, "out/part").is_ok());
      }
      ASSERT_TRUE(write_shard(files, "part", 30, 10, options).is_ok());
      EXPECT_TRUE(verify_shard(memory, "out/part").is_ok());
      EXPECT_EQ(memory.list_tree("out")->size(), 1u);
    }
  }
}

TEST(ShardWriter, a_crash_at_any_instant_leaves_a_whole_shard_or_none) {
  MemoryFileSystem counted_memory;
  FaultInjectingFileSystem counted(counted_memory);
  ASSERT_TRUE(write_shard(counted, "part", 30, 10).is_ok());
  for (int64_t call = 0; call <= counted.num_calls(); ++call) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(fmt::format("call {}, seed {}", call, seed));
      MemoryFileSystem memory;
      bool acknowledged = false;
      {
        FaultInjectingFileSystem files(memory);
        files.fail_call(call, Fault::kDeath);
        acknowledged = write_shard(files, "part", 30, 10).is_ok();
      }
      memory.crash(seed);
      const bool visible = memory.exists("out/part").value();
      EXPECT_TRUE(visible || !acknowledged);
      if (visible) {
        EXPECT_TRUE(verify_shard(memory, "out/part").is_ok());
      }
    }
  }
}

TEST(VerifyShard, notices_every_flipped_bit_and_every_truncation) {
  MemoryFileSystem files;
  const ShardRecord record = write_shard(files, "part.parquet", 60, 60).value();
  const std::string bytes = read_file(files, record.path).value();
  const CounterRandom random(1, Purpose::kSelect, 0, "flips");
  for (uint64_t trial = 0; trial < 600; ++trial) {
    std::string damaged = bytes;
    const uint32_t place = random.below(2 * trial, static_cast<uint32_t>(bytes.size()));
    if (trial % 3 == 0) {
      damaged.resize(place);
    } else {
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << random.below(2 * trial + 1, 8)));
    }
    ASSERT_TRUE(put_file(files, "damaged.parquet", damaged).is_ok());
    EXPECT_EQ(verify_shard(files, "damaged.parquet").code(), StatusCode::kCorruptData) << "trial " << trial << " at " << place;
  }
}

TEST(VerifyShard, refuses_what_is_no_shard_of_ours) {
  MemoryFileSystem files;
  ASSERT_TRUE(put_file(files, "a.parquet", "PAR1 is not enough PAR1").is_ok());
  EXPECT_EQ(verify_shard(files, "a.parquet").code(), StatusCode::kCorruptData);
  EXPECT_EQ(verify_shard(files, "none.parquet").code(), StatusCode::kNotFound);
}

TEST(ShardOptions, are_refused_one_past_their_limits) {
  for (const int level : {1, 3, 22}) {
    EXPECT_TRUE((ShardOptions{.zstd_level = level}).validate().is_ok()) << level;
  }
  for (const int level : {-1, 0, 23}) {
    EXPECT_EQ((ShardOptions{.zstd_level = level}).validate().code(), StatusCode::kInvalidArgument) << level;
  }
  EXPECT_TRUE(ShardOptions{.row_group_bytes = 1}.validate().is_ok());
  EXPECT_EQ(ShardOptions{.row_group_bytes = 0}.validate().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
