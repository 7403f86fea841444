#include "tables/mds_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "darkroom/files/memory_files.h"
#include "support/temporary_folder.h"
#include "unit/tables/table_rows.h"
#include "unit/tables/tar_blocks.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string mds_golden(const std::string& name) { return source_path("tests/golden/tables/mds/" + name); }

/// What rows.tsv says of a column, as (NAME=)VALUE of each row of a shard.
std::vector<std::string> golden_values(const std::string& shard, const std::string& column) {
  std::vector<std::string> values;
  std::istringstream lines(read_file(local_files(), mds_golden("rows.tsv")).value());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string field;
    std::getline(fields, field, '\t');
    if (field != shard) {
      continue;
    }
    while (std::getline(fields, field, '\t')) {
      if (field.starts_with(column + "=")) {
        values.push_back(field.substr(column.size() + 1));
      }
    }
  }
  return values;
}

std::vector<std::string> golden_bytes(const std::string& shard, const std::string& column) {
  std::vector<std::string> values = golden_values(shard, column);
  std::ranges::transform(values, values.begin(), from_hex);
  return values;
}

TEST(MdsTable, reads_what_streaming_wrote_plain_and_compressed) {
  for (const char* shard : {"shard.00000.mds", "shard.00001.mds"}) {
    for (const std::string& path : {mds_golden(std::string("plain/") + shard), mds_golden(std::string("zstd/") + shard + ".zstd")}) {
      const auto table = open_table(local_files(), path);
      ASSERT_TRUE(table.is_ok()) << table.status().to_string();
      EXPECT_EQ((*table)->format(), TableFormat::kMds);
      const auto captions = golden_bytes(shard, "caption");
      EXPECT_EQ(*(*table)->num_rows(), static_cast<int64_t>(captions.size()));
      const auto batch = read_range(**table, 0, 100);
      ASSERT_TRUE(batch.is_ok()) << batch.status().to_string();
      ASSERT_TRUE((*batch)->ValidateFull().ok());
      EXPECT_EQ(texts(*batch, "caption"), captions);
      for (const char* column : {"jpg", "png", "raw"}) {
        EXPECT_EQ(texts(*batch, column), golden_bytes(shard, column)) << column;
      }
      for (const char* column : {"note", "digits"}) {
        EXPECT_EQ(texts(*batch, column), golden_values(shard, column)) << column;
      }
      for (const char* column : {"number", "small", "wide"}) {
        const auto array = (*batch)->GetColumnByName(column);
        for (int64_t row = 0; row < array->length(); ++row) {
          EXPECT_EQ((*array->GetScalar(row))->ToString(), golden_values(shard, column)[static_cast<size_t>(row)]) << column;
        }
      }
      for (const char* column : {"ratio", "score"}) {
        const auto array = (*batch)->GetColumnByName(column);
        for (int64_t row = 0; row < array->length(); ++row) {
          EXPECT_FLOAT_EQ(std::stof((*array->GetScalar(row))->ToString()),
                          std::stof(golden_values(shard, column)[static_cast<size_t>(row)]));
        }
      }
      EXPECT_EQ((*batch)->GetColumnByName("half")->type_id(), arrow::Type::HALF_FLOAT);
      for (const char* column : {"pixels", "object", "tensor", "fixed"}) {
        EXPECT_EQ((*batch)->GetColumnByName(column)->type_id(), arrow::Type::NA) << column;
      }
    }
  }
}

TEST(MdsTable, the_letter_case_of_its_ending_plays_no_part) {
  MemoryFileSystem files;
  const std::string plain = *read_file(local_files(), mds_golden("plain/shard.00000.mds"));
  const std::string zipped = *read_file(local_files(), mds_golden("zstd/shard.00000.mds.zstd"));
  ASSERT_TRUE(write_file_atomic(files, "A.MDS", plain).is_ok());
  ASSERT_TRUE(write_file_atomic(files, "B.MDS.ZSTD", zipped).is_ok());
  for (const char* name : {"A.MDS", "B.MDS.ZSTD"}) {
    const auto table = open_table(files, name);
    ASSERT_TRUE(table.is_ok()) << table.status().to_string();
    EXPECT_EQ(*(*table)->num_rows(), static_cast<int64_t>(golden_bytes("shard.00000.mds", "caption").size()));
  }
}

TEST(MdsTable, any_range_gives_the_rows_of_the_whole) {
  for (const char* name : {"plain/shard.00000.mds", "zstd/shard.00000.mds.zstd"}) {
    const auto table = *open_table(local_files(), mds_golden(name));
    const auto captions = golden_bytes("shard.00000.mds", "caption");
    const auto num_rows = static_cast<int64_t>(captions.size());
    for (int64_t first = 0; first < num_rows + 2; ++first) {
      for (int64_t count = 0; count < num_rows + 2; ++count) {
        const std::vector<std::string> wanted(captions.begin() + std::min(first, num_rows),
                                              captions.begin() + std::min(first + count, num_rows));
        EXPECT_EQ(texts(*read_range(*table, first, count, {"caption"}, {.batch_bytes = 1}), "caption"), wanted);
      }
    }
  }
}

std::string word(uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

/// A shard of samples with a text column `caption` and a binary one `image`.
struct MadeShard {
  std::vector<std::string> samples;
  std::string config =
      R"({"column_encodings": ["str", "jpeg"], "column_names": ["caption", "image"], "column_sizes": [null, null], "format": "mds", "version": 2})";

  static std::string sample(const std::string& caption, const std::string& image) {
    return word(static_cast<uint32_t>(caption.size())) + word(static_cast<uint32_t>(image.size())) + caption + image;
  }
  std::string bytes() const {
    auto at = static_cast<uint32_t>(4 * (samples.size() + 2) + config.size());
    std::string head = word(static_cast<uint32_t>(samples.size())) + word(at);
    std::string data;
    for (const std::string& one : samples) {
      head += word(at += static_cast<uint32_t>(one.size()));
      data += one;
    }
    return head + config + data;
  }
};

/// Bytes under a name.
Result<std::unique_ptr<TableReader>> open_mds(const std::string& bytes, const std::string& name = "x.mds") {
  const TemporaryFolder folder;
  EXPECT_TRUE(put_file(local_files(), folder.path(name), bytes).is_ok());
  return open_table(local_files(), folder.path(name));
}

TEST(MdsTable, a_sample_whose_sizes_do_not_fit_costs_its_row) {
  const MadeShard shard{.samples = {MadeShard::sample("a", "x"), "", "abc", word(100) + word(1) + "y", word(0xFFFFFFFF) + word(2) + "zz",
                                    MadeShard::sample("b", "y") + "more", MadeShard::sample("c", "")}};
  const auto table = *open_mds(shard.bytes());
  const auto range = *table->read_rows(0, 100, {});
  const auto batch = *read_all(*range);
  EXPECT_THAT(texts(batch, "caption"), ElementsAre("a", "<null>", "<null>", "<null>", "<null>", "<null>", "c"));
  EXPECT_THAT(texts(batch, "image"), ElementsAre("x", "<null>", "<null>", "<null>", "<null>", "<null>", ""));
  EXPECT_EQ(range->num_malformed_rows(), 5);
}

TEST(MdsTable, an_empty_shard_has_no_rows) {
  const auto table = open_mds(MadeShard{}.bytes());
  ASSERT_TRUE(table.is_ok()) << table.status().to_string();
  EXPECT_EQ(*(*table)->num_rows(), 0);
  EXPECT_EQ(*read_range(**table, 0, 5), nullptr);
}

TEST(MdsTable, damage_is_told_with_the_file) {
  const std::string whole = MadeShard{.samples = {MadeShard::sample("a", "x"), MadeShard::sample("b", "y")}}.bytes();
  const auto failure = [](const std::string& bytes, const std::string& name = "x.mds") {
    const Status status = open_mds(bytes, name).status();
    EXPECT_THAT(status.message(), HasSubstr(name));
    return status.to_string();
  };
  for (const size_t size : {size_t{0}, size_t{3}, size_t{4}, size_t{15}, size_t{30}, whole.size() - 1}) {
    EXPECT_THAT(failure(whole.substr(0, size)), HasSubstr("corrupt")) << size;
  }
  EXPECT_THAT(failure(whole + "x"), HasSubstr("another size"));
  EXPECT_THAT(failure(word(0xFFFFFFFF) + whole.substr(4)), HasSubstr("more rows than can be"));
  EXPECT_THAT(failure(word(1 << 20) + whole.substr(4)), HasSubstr("ends before"));
  EXPECT_THAT(failure(whole.substr(0, 4) + word(1) + whole.substr(8)), HasSubstr("out of order"));
  EXPECT_THAT(failure(whole.substr(0, 8) + word(0xFFFFFF) + whole.substr(12)), HasSubstr("out of order"));
}

TEST(MdsTable, a_head_that_does_not_add_up_is_refused) {
  const auto failure = [](const std::string& config) { return open_mds(MadeShard{.samples = {}, .config = config}.bytes()).status(); };
  for (const char* config :
       {"", "[]", "{", R"({"column_names": 3})", R"({"column_names": ["a"], "column_encodings": [], "column_sizes": [null]})",
        R"({"column_names": ["a"], "column_encodings": ["int"], "column_sizes": [4]})",
        R"({"column_names": ["a"], "column_encodings": ["int"], "column_sizes": [null]})",
        R"({"column_names": ["a"], "column_encodings": ["str"], "column_sizes": [-1]})",
        R"({"column_names": ["a"], "column_encodings": ["str"], "column_sizes": ["x"]})"}) {
    EXPECT_EQ(failure(config).code(), StatusCode::kCorruptData) << config << failure(config).to_string();
  }
  const Status later = failure(R"({"column_names": [], "column_encodings": [], "column_sizes": [], "version": 3})");
  EXPECT_EQ(later.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(failure(std::string(2 << 20, ' ')).code(), StatusCode::kCorruptData);
}

TEST(MdsTable, compressed_damage_costs_what_lies_behind_it) {
  const std::string whole = read_file(local_files(), mds_golden("zstd/shard.00000.mds.zstd")).value();
  EXPECT_EQ(open_mds("no zstd at all, but long enough", "x.mds.zstd").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(open_mds("", "x.mds.zstd").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(open_mds(whole.substr(0, 20), "x.mds.zstd").status().code(), StatusCode::kCorruptData);
  const TemporaryFolder folder;
  ASSERT_TRUE(put_file(local_files(), folder.path("x.mds.zstd"), whole.substr(0, whole.size() - 100)).is_ok());
  const auto table = open_table(local_files(), folder.path("x.mds.zstd"));
  const Status status = table.is_ok() ? read_range(**table, 0, 100).status() : table.status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("x.mds.zstd"));
  const Status other = open_mds("x", "x.mds.gz").status();
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr("x.mds.gz"));
}

}  // namespace
}  // namespace darkroom
