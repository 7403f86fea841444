#include "ingest/base_rows.h"

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class BaseRowsTest : public ::testing::Test {
 protected:
  /// A part of item rows 100 ... 109 with these keys.
  void write_part(const std::vector<std::string>& keys) {
    arrow::StringBuilder column;
    for (const std::string& key : keys) {
      ASSERT_TRUE((key.empty() ? column.AppendNull() : column.Append(key)).ok());
    }
    const auto rows = arrow::RecordBatch::Make(schema_, static_cast<int64_t>(keys.size()), {*column.Finish()});
    ASSERT_TRUE(put_shard(files_, "out", "part-000010.parquet", *rows).is_ok());
  }
  void write_rows(int64_t first, int64_t end) {
    std::vector<std::string> keys;
    for (int64_t row = first; row < end; ++row) {
      keys.push_back(row_key(row));
    }
    write_part(keys);
  }
  Result<std::unique_ptr<BaseRows>> open(std::vector<int64_t> redone) {
    const BasePart base{.place = {.store = store_.get(), .path = "out/part-000010.parquet"}, .redone = std::move(redone)};
    return BaseRows::open(base, {}, {.number = 10, .whole_rows = 10, .list_row = 100, .generation = 1});
  }
  /// The numbers within the item of the rows that come before a position.
  static std::vector<int64_t> rows_before(BaseRows& rows, int64_t position) {
    std::vector<int64_t> numbers;
    while (true) {
      const auto batch = rows.next(position);
      EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
      if (!batch.is_ok() || *batch == nullptr) {
        return numbers;
      }
      const auto keys = std::static_pointer_cast<arrow::StringArray>((*batch)->column(0));
      for (int64_t i = 0; i < keys->length(); ++i) {
        numbers.push_back(std::stoll(keys->GetString(i)) - 100);
      }
    }
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  const std::shared_ptr<arrow::Schema> schema_ = arrow::schema({arrow::field("key", arrow::utf8())});
};

TEST_F(BaseRowsTest, rows_come_up_to_a_position_without_those_that_are_redone) {
  write_rows(100, 110);
  const auto rows = open({0, 3, 4, 9}).value();
  EXPECT_THAT(rows_before(*rows, 0), IsEmpty());
  EXPECT_THAT(rows_before(*rows, 3), ElementsAre(1, 2));
  EXPECT_THAT(rows_before(*rows, 4), IsEmpty());
  EXPECT_THAT(rows_before(*rows, 6), ElementsAre(5));
  EXPECT_THAT(rows_before(*rows, 10), ElementsAre(6, 7, 8));
  EXPECT_THAT(rows_before(*rows, 10), IsEmpty());
  EXPECT_EQ(rows->num_rows(), 6);
}

TEST_F(BaseRowsTest, a_part_may_lack_the_rows_that_failed_and_may_be_empty) {
  write_part({row_key(101), row_key(108)});
  EXPECT_THAT(rows_before(*open({0, 2})->get(), 10), ElementsAre(1, 8));
  ASSERT_TRUE(files_.remove_file("out/part-000010.parquet").is_ok());
  write_part({});
  EXPECT_THAT(rows_before(*open({0, 2})->get(), 10), IsEmpty());
}

TEST_F(BaseRowsTest, keys_that_are_not_the_items_are_named) {
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{{row_key(99)},
                                                                                    {row_key(110)},
                                                                                    {row_key(102), row_key(101)},
                                                                                    {row_key(101), row_key(101)},
                                                                                    {"101"},
                                                                                    {"0000000001x1"},
                                                                                    {""},
                                                                                    {"99999999999999999999"}}) {
    write_part(keys);
    const Status status = open({}).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << keys.front();
    EXPECT_THAT(status.message(), HasSubstr("part-000010.parquet"));
    EXPECT_THAT(status.message(), HasSubstr(keys.back().empty() ? "(null)" : keys.back()));
    ASSERT_TRUE(files_.remove_file("out/part-000010.parquet").is_ok());
  }
}

TEST_F(BaseRowsTest, a_part_without_keys_is_an_error) {
  write_rows(100, 110);
  const BasePart base{.place = {.store = store_.get(), .path = "out/part-000010.parquet"}};
  const Status status = BaseRows::open(base, {"key", "image"}, {.whole_rows = 10, .list_row = 100}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("image"));
}

}  // namespace
}  // namespace darkroom
