// download --dedup url.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/files/posix_store.h"
#include "support/download_web.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

class RepeatedUrls : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 9; ++i) {
      web_.add_picture(i);
    }
    web_.start();
  }
  std::string output(const std::string& name = "images") const { return folder_.path(name); }
  std::string url(int picture) { return fmt::format("{}/picture{}.png", web_.web().url(), picture); }
  struct Row {
    std::string url;
    std::string caption = "a picture";
  };
  void write_rows(const std::string& name, const std::vector<Row>& rows) {
    std::filesystem::create_directories(folder_.path("tables"));
    std::string text;
    int number = 0;
    for (const Row& row : rows) {
      text += nlohmann::json{{"url", row.url}, {"caption", row.caption}, {"number", ++number}}.dump() + "\n";
    }
    write_bytes(folder_.path("tables/" + name), text);
  }
  DownloadOptions options(const std::string& place) const {
    DownloadOptions options = web_.options(place);
    options.metadata = {folder_.path("tables")};
    options.rows_per_file = 4;
    options.dedup.url = true;
    return options;
  }
  StageSummary download(const DownloadOptions& options) {
    auto summary = run_download(stores_, options, {});
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : StageSummary();
  }
  /// Numbers in the list of the rows that failed with the code.
  std::vector<int64_t> failed(const std::string& folder, const std::string& code = "duplicate") {
    std::vector<int64_t> rows;
    for (const auto& [name, bytes] : part_bytes(folder)) {
      const PartRecord record = read_part_record(Location{.store = &local_store(), .path = folder} / name).value();
      const auto found = record.tally.failed_rows.find(code);
      for (const int64_t row : found == record.tally.failed_rows.end() ? std::vector<int64_t>() : found->second) {
        rows.push_back(record.input.first_row + record.first_row + row);
      }
    }
    return rows;
  }
  std::vector<std::string> lists(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("_repeated-")) {
        names.push_back(entry.path());
      }
    }
    return names;
  }

  TemporaryFolder folder_;
  DownloadWeb web_;
  MetricsRegistry metrics_;
  StoreSet stores_{{}, system_clock(), metrics_};
};

TEST_F(RepeatedUrls, the_first_row_of_the_list_keeps_a_url_and_the_others_are_duplicates) {
  write_rows("a.jsonl", {{url(0)}, {url(1)}, {url(0)}, {url(2)}, {" " + url(1) + "\t"}, {url(3)}});
  write_rows("b.jsonl", {{url(3)}, {url(4)}, {url(0)}, {url(4)}, {url(5)}});
  const StageSummary summary = download(options(output()));
  EXPECT_EQ(failed(output()), (std::vector<int64_t>{2, 4, 6, 8, 9}));
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"duplicate", 5}}));
  EXPECT_EQ(summary.rows_in, 11);
  EXPECT_EQ(summary.rows_out, 6);
  EXPECT_EQ(web_.web().num_requests(), 6);
  EXPECT_EQ(lists(output()).size(), 1u);
}

TEST_F(RepeatedUrls, rows_that_are_not_asked_for_repeat_nothing) {
  write_rows("a.jsonl", {{url(0), "  "}, {""}, {""}, {url(0)}, {url(0), " "}, {url(1)}, {url(0)}, {url(1)}});
  DownloadOptions filtered = options(output());
  download(filtered);
  EXPECT_EQ(failed(output()), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(failed(output(), "empty_caption"), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(failed(output(), "bad_url"), (std::vector<int64_t>{1, 2}));
  filtered.output = output("filtered");
  filtered.where = "number >= '7'";  // A text, as every column of JSON lines is.
  download(filtered);
  EXPECT_EQ(failed(output("filtered")), (std::vector<int64_t>{}));
}

TEST_F(RepeatedUrls, rows_of_an_item_behind_the_limit_stay_duplicates_when_they_are_redone) {
  write_rows("a.jsonl", {{url(0)}, {url(1)}, {url(2)}, {url(3)}, {url(0)}, {url(1)}});
  DownloadOptions job = options(output());
  job.rows_per_file = 6;
  download(job);
  ASSERT_EQ(failed(output()), (std::vector<int64_t>{4, 5}));
  const int64_t num_requests = web_.web().num_requests();
  for (const std::string& list : lists(output())) {
    std::filesystem::remove(list);
  }
  job.selection.limit = 2;
  job.retry_failed = RetryCodes::parse("duplicate").value();
  download(job);
  EXPECT_EQ(web_.web().num_requests(), num_requests) << "nothing is fetched twice";
  EXPECT_EQ(failed(output()), (std::vector<int64_t>{4, 5}));
}

TEST_F(RepeatedUrls, shards_items_limits_little_memory_and_a_lost_list_change_no_byte) {
  std::vector<Row> rows;
  for (int i = 0; i < 1100; ++i) {
    rows.push_back({url(i * i % 9)});
  }
  write_rows("a.jsonl", rows);
  DownloadOptions undisturbed = options(output("whole"));
  undisturbed.rows_per_file = 100;
  download(undisturbed);
  const auto whole = part_bytes(output("whole"));
  ASSERT_FALSE(failed(output("whole")).empty());

  DownloadOptions backwards = undisturbed;
  backwards.output = output("backwards");
  for (int64_t item = 10; item >= 0; --item) {
    backwards.selection.items = {item};
    download(backwards);
  }
  EXPECT_EQ(part_bytes(output("backwards")), whole);

  DownloadOptions limited = undisturbed;
  limited.output = output("limited");
  limited.memory_bytes = 20'000;  // Three passes.
  for (const int64_t limit : {50, 130, 270, -1}) {
    limited.selection.limit = limit;
    download(limited);
    EXPECT_EQ(lists(limited.output).size(), limit < 0 ? 1u : 0u) << limit;
  }
  EXPECT_EQ(part_bytes(limited.output), whole);

  std::filesystem::remove(output("limited") + "/part-000003.parquet");
  std::filesystem::remove(lists(limited.output)[0]);
  download(limited);
  EXPECT_EQ(part_bytes(limited.output), whole);
}

TEST_F(RepeatedUrls, files_that_came_later_repeat_those_before_them) {
  write_rows("b.jsonl", {{url(0)}, {url(1)}});
  download(options(output()));
  write_rows("a.jsonl", {{url(1)}, {url(2)}, {url(2)}});
  DownloadOptions extended = options(output());
  extended.selection.extend = true;
  EXPECT_EQ(download(extended).rows_out, 3);
  EXPECT_EQ(failed(output()), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(lists(output()).size(), 2u);
}

TEST_F(RepeatedUrls, duplicates_are_of_the_job) {
  write_rows("a.jsonl", {{url(0)}, {url(0)}});
  download(options(output()));
  DownloadOptions other = options(output());
  other.dedup.url = false;
  const Status status = run_download(stores_, other, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("dedup_url (had true, asked for null)"));
}

TEST_F(RepeatedUrls, duplicates_that_are_retried_stay_duplicates) {
  write_rows("a.jsonl", {{url(0)}, {url(0)}, {url(1)}});
  download(options(output()));
  DownloadOptions retried = options(output());
  retried.retry_failed = RetryCodes::parse("duplicate").value();
  EXPECT_EQ(download(retried).rows_by_error, (RowsByError{{"duplicate", 1}}));
  EXPECT_EQ(failed(output()), (std::vector<int64_t>{1}));
}

// A footer may say any number of rows: nothing is held for them before that is looked at.
TEST_F(RepeatedUrls, more_rows_than_memory_has_bits_for_are_refused_with_their_file) {
  write_rows("a.jsonl", {{url(0)}});
  write_rows("b.jsonl", std::vector<Row>(200, {url(0)}));
  DownloadOptions small = options(output());
  small.memory_bytes = 40;
  const Status status = run_download(stores_, small, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("b.jsonl 200"));
}

TEST_F(RepeatedUrls, a_damaged_list_is_named_with_what_to_do) {
  write_rows("a.jsonl", {{url(0)}, {url(0)}});
  download(options(output()));
  const std::string list = lists(output())[0];
  const std::string good = read_bytes(list);
  std::filesystem::remove(output() + "/part-000000.parquet");
  const auto foreign = [&](int64_t item, const std::string& rows, const std::string& key) {
    const auto schema = arrow::schema({arrow::field("item", arrow::int64(), false), arrow::field("rows", arrow::utf8(), false)});
    arrow::Int64Builder items;
    arrow::StringBuilder packed;
    EXPECT_TRUE((items.Append(item) & packed.Append(rows)).ok());
    const auto row = arrow::RecordBatch::Make(schema, 1, {*items.Finish(), *packed.Finish()});
    EXPECT_TRUE(put_shard(local_files(), folder_.path("made"), "list.parquet", *row, {{"darkroom.repeated", key}}).is_ok());
    std::string bytes = read_bytes(folder_.path("made/list.parquet"));
    std::filesystem::remove(folder_.path("made/list.parquet"));
    return bytes;
  };
  const std::string key = *read_footer(local_files(), list)->find("darkroom.repeated");
  for (const std::string& bytes :
       {std::string(), good.substr(0, good.size() / 2), foreign(1, pack_rows({1}), key), foreign(-1, pack_rows({1}), key),
        foreign(0, pack_rows({2}), key), foreign(0, "x", key), foreign(0, pack_rows({1}), "{}")}) {
    write_bytes(list, bytes);
    const Status status = run_download(stores_, options(output()), {}).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("delete it and run again"));
    EXPECT_THAT(status.message(), HasSubstr("_repeated-"));
  }
  write_bytes(list, foreign(0, pack_rows({1}), key));
  EXPECT_EQ(download(options(output())).rows_out, 1);
}

}  // namespace
}  // namespace darkroom
