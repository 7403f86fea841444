#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/verify_shard.h"
#include "support/image_containers.h"
#include "support/remote_files.h"
#include "support/rounds.h"
#include "support/shard_rows.h"
#include "unit/tables/parquet_bytes.h"
#include "unit/tables/table_rows.h"

namespace darkroom {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kPictures = 240;
constexpr size_t kPictureBytes = 100'000;

/// Tables of 24 MB that are somewhere else.
class RemoteTables : public testing::Test {
 protected:
  static std::vector<std::string> pictures() {
    const std::string bytes = numbered_bytes(static_cast<int64_t>(kPictures * kPictureBytes));
    std::vector<std::string> values;
    for (size_t row = 0; row < kPictures; ++row) {
      values.push_back(bytes.substr(row * kPictureBytes, kPictureBytes));
    }
    return values;
  }
  static std::vector<std::optional<std::string>> keys() {
    std::vector<std::optional<std::string>> values;
    for (int row = 0; row < kPictures; ++row) {
      values.emplace_back(fmt::format("{:06}", row));
    }
    return values;
  }
  /// With pages of about a megabyte.
  void put_parquet(int64_t rows_per_group) {
    const auto schema =
        arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("image", arrow::binary()), arrow::field("caption", arrow::utf8())});
    const auto table = arrow::Table::Make(schema, {strings(keys()), blobs(pictures()), strings(keys())});
    auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
    parquet::WriterProperties::Builder properties;
    properties.disable_dictionary()->write_batch_size(8);
    ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, rows_per_group, properties.build()).ok());
    ASSERT_TRUE(put_file(memory_, "a.parquet", sink->Finish().ValueOrDie()->ToString()).is_ok());
  }
  static std::vector<ContainedRow> contained_rows() {
    std::vector<ContainedRow> rows;
    for (const std::string& picture : pictures()) {
      rows.push_back({.key = fmt::format("{:06}", rows.size()), .caption = "a picture", .image = picture});
    }
    return rows;
  }
  void put_tar() { write_tars(memory_, "tars", contained_rows()); }
  void put_csv() {
    std::string text = "url,caption\n";
    while (static_cast<int64_t>(text.size()) < 20 * kMiB) {
      text += fmt::format("http://host/{},a caption of no importance\n", text.size());
    }
    ASSERT_TRUE(put_file(memory_, "a.csv", text).is_ok());
  }
  RemoteRequests& requests() { return files_.requests; }
  std::unique_ptr<TableReader> open(const std::string& path) {
    auto table = open_table(files_, path);
    EXPECT_TRUE(table.is_ok()) << table.status().to_string();
    requests().clear();
    return *std::move(table);
  }
  std::shared_ptr<arrow::RecordBatch> local_rows(const std::string& path, int64_t first, int64_t count,
                                                 const std::vector<std::string>& columns = {}) {
    return read_range(*open_table(memory_, path).value(), first, count, columns).value();
  }

  MemoryFileSystem memory_;
  RemoteFiles files_{memory_};
};

TEST_F(RemoteTables, a_parquet_file_is_asked_for_eight_pieces_at_once) {
  for (const int64_t rows_per_group : {240, 100, 10}) {
    put_parquet(rows_per_group);
    const auto table = open("a.parquet");
    requests().hold_back(8);
    const auto rows = read_range(*table, 0, 1'000).value();
    ASSERT_TRUE(rows->Equals(*local_rows("a.parquet", 0, 1'000))) << rows_per_group;
    EXPECT_EQ(requests().most_at_once(), 8) << rows_per_group;
    const int64_t num_groups = (kPictures + rows_per_group - 1) / rows_per_group;
    EXPECT_LE(requests().size(), static_cast<size_t>(24 + 3 * num_groups)) << rows_per_group;
    EXPECT_LE(requests().num_bytes(), 25 * kMiB);
  }
}

TEST_F(RemoteTables, every_range_of_a_parquet_file_is_that_of_a_local_one) {
  put_parquet(70);
  const auto table = open("a.parquet");
  int64_t number = 0;
  for (const int64_t first : {0, 69, 70, 200, 240}) {
    for (const int64_t count : {1, 71, 500}) {
      for (const int64_t ahead : {int64_t{0}, int64_t{1} << 16, kReadAheadBytes}) {
        if (number++ % kCaseStride != 0) {
          continue;
        }
        const auto rows = read_range(*table, first, count, {"image", "key"}, {.read_ahead_bytes = ahead}).value();
        const auto want = local_rows("a.parquet", first, count, {"image", "key"});
        ASSERT_EQ(rows == nullptr, want == nullptr);
        ASSERT_TRUE(rows == nullptr || rows->Equals(*want)) << first << " " << count << " " << ahead;
      }
    }
  }
}

TEST_F(RemoteTables, few_rows_of_a_row_group_are_few_bytes) {
  put_parquet(240);
  const auto table = open("a.parquet");
  ASSERT_EQ(read_range(*table, 0, 5, {}, {.max_batch_rows = 5}).value()->num_rows(), 5);
  EXPECT_LE(requests().num_bytes(), 3 * kMiB);
  requests().clear();
  ASSERT_EQ(read_range(*table, 0, 1'000, {"key", "caption"}).value()->num_rows(), kPictures);
  EXPECT_LE(requests().num_bytes(), kMiB);
  EXPECT_LE(requests().size(), 2u);
}

TEST_F(RemoteTables, a_fault_of_the_store_is_that_of_the_read) {
  put_parquet(100);
  bool is_away = false;
  requests().trouble = [&](ByteRange range) {
    return is_away && range.offset > 8 * kMiB ? Status::unavailable("the store is away") : Status::ok();
  };
  const auto table = open("a.parquet");
  is_away = true;
  const auto range = table->read_rows(0, 1'000, {"key", "image"}, {.batch_bytes = kMiB}).value();
  int64_t num_rows = 0;
  Result<std::shared_ptr<arrow::RecordBatch>> next = range->next();
  for (; next.is_ok() && *next != nullptr; next = range->next()) {
    num_rows += (*next)->num_rows();
  }
  EXPECT_EQ(next.status().code(), StatusCode::kUnavailable) << next.status().to_string();
  EXPECT_GE(num_rows, 60);
  EXPECT_LT(num_rows, 100);
}

TEST_F(RemoteTables, tars_shards_and_text_are_asked_for_eight_pieces_at_once) {
  put_tar();
  put_csv();
  write_mds(memory_, "mds", contained_rows());
  for (const char* path : {"tars/00000.tar", "mds/shard.00000.mds", "a.csv"}) {
    const auto table = open(path);
    requests().hold_back(8);
    const auto rows = read_range(*table, 1, INT64_MAX - 1).value();
    ASSERT_TRUE(rows->Equals(*local_rows(path, 1, 1'000'000))) << path;
    EXPECT_EQ(requests().most_at_once(), 8) << path;
    EXPECT_LE(requests().num_bytes(), 26 * kMiB) << path;
  }
}

TEST_F(RemoteTables, rows_of_a_tar_whose_end_is_known_are_read_alone) {
  put_tar();
  const auto table = open("tars/00000.tar");
  ASSERT_EQ(table->num_rows().value(), kPictures);
  requests().clear();
  ASSERT_TRUE(read_range(*table, 100, 10).value()->Equals(*local_rows("tars/00000.tar", 100, 10)));
  EXPECT_LE(requests().num_bytes(), 5 * kMiB);  // A window of the walk.
}

TEST_F(RemoteTables, a_shard_is_verified_with_eight_requests_at_once) {
  const auto store = make_posix_store(memory_, "memory");
  const FinishedShard shard = stream_rows(store->begin_object("out", "part.parquet").value(), 3'000, 500, {}).value();
  ASSERT_TRUE(shard.object->publish().is_ok());
  ASSERT_GE(shard.num_bytes, 9 * kMiB) << "too small for eight pieces";
  std::latch pieces(8);
  std::atomic<int> num_pieces_asked = 0;
  requests().trouble = [&](ByteRange range) {  // The footer is asked for in smaller parts.
    if (range.num_bytes == kMiB && num_pieces_asked++ < 8) {
      pieces.arrive_and_wait();
    }
    return Status::ok();
  };
  ASSERT_TRUE(verify_shard(files_, "out/part.parquet").is_ok());
  EXPECT_EQ(requests().most_at_once(), 8);
  const size_t num_pieces = static_cast<size_t>(shard.num_bytes / kMiB) + 1;
  EXPECT_LE(requests().size(), num_pieces + 3);
}

TEST_F(RemoteTables, pages_of_more_than_a_megabyte_are_told_before_they_are_read) {
  put_parquet(100);
  const auto schema = arrow::schema({arrow::field("image", arrow::binary())});
  const auto table = arrow::Table::Make(schema, {blobs(pictures())});
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  parquet::WriterProperties::Builder properties;
  properties.disable_dictionary()->write_batch_size(80);  // Pages of 80 rows: 8 MB.
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 160, properties.build()).ok());
  ASSERT_TRUE(put_file(memory_, "large.parquet", sink->Finish().ValueOrDie()->ToString()).is_ok());
  const auto told_of = [&](const std::string& path) {
    std::vector<int64_t> told;
    const ReadOptions options{.hold_pages = [&](int64_t num_bytes) {
      told.push_back(num_bytes);
      return Status::ok();
    }};
    EXPECT_EQ(read_range(*open_table(memory_, path).value(), 0, 1'000, {"image"}, options).value()->num_rows(), kPictures);
    return told;
  };
  const std::vector<int64_t> of_small = told_of("a.parquet");
  EXPECT_TRUE(of_small.empty() || *std::ranges::max_element(of_small) <= 5 * kMiB);
  const std::vector<int64_t> told = told_of("large.parquet");
  EXPECT_GE(*std::ranges::max_element(told), 16'000'000);
  EXPECT_LE(*std::ranges::max_element(told), 16'000'000 + 3 * kMiB);
  EXPECT_EQ(told.back(), 0);
  EXPECT_GE(std::ranges::count(told, 0), 2) << "a row group gives back what it held";

  const ReadOptions refused{.hold_pages = [](int64_t) { return Status::cancelled("stopped"); }};
  EXPECT_EQ(read_range(*open_table(memory_, "large.parquet").value(), 0, 1'000, {}, refused).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace darkroom
