// download --dedup content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/tables/verify_shard.h"
#include "download_fixture.h"
#include "ingest/repeated_contents.h"
#include "ingest/repeated_urls.h"
#include "support/planned_jobs.h"
#include "support/rounds.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RepeatedContents : public DownloadTest {
 protected:
  /// A row with a URL of its own and this picture.
  void add(int picture, nlohmann::json trouble = nlohmann::json::object()) {
    const std::string name = fmt::format("picture{}.png", picture);
    web_.add_file(name, numbered_png(picture));
    trouble["file"] = name;
    web_.add_trouble(fmt::format("row{}", web_.num_rows()), trouble);
  }
  void add_all(const std::vector<int>& pictures) {
    for (const int picture : pictures) {
      add(picture);
    }
  }
  DownloadOptions options(const std::string& place) const {
    DownloadOptions options = web_.options(place);
    options.rows_per_file = 4;
    options.fetch.num_retries = 0;
    options.dedup.content = true;
    return options;
  }
  /// Numbers in the list of the rows that are duplicates.
  std::vector<int64_t> duplicates(const std::string& folder) {
    std::vector<int64_t> rows;
    for (const auto& [name, bytes] : part_bytes(folder)) {
      const PartRecord record = read_part_record(Location{.store = &local_store(), .path = folder} / name).value();
      const auto found = record.tally.failed_rows.find("duplicate");
      for (const int64_t row : found == record.tally.failed_rows.end() ? std::vector<int64_t>() : found->second) {
        rows.push_back(record.first_row + row);
      }
    }
    return rows;
  }
  static std::vector<std::string> names(const std::string& folder) { return names_of(part_bytes(folder)); }
};

TEST_F(RepeatedContents, the_first_row_of_the_list_keeps_a_picture_and_the_others_are_duplicates) {
  add_all({0, 1, 0, 2, 3, 4, 5, 6, 2, 1, 7, 7});
  web_.start();
  const StageSummary summary = download(options(output()));
  EXPECT_EQ(summary.rows_in, 12);
  EXPECT_EQ(summary.rows_out, 8);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"duplicate", 4}}));
  EXPECT_EQ(summary.rows_this_run, 12);
  EXPECT_EQ(duplicates(output()), (std::vector<int64_t>{2, 8, 9, 11}));
  EXPECT_THAT(names(output()), ElementsAre("part-000000-g1.parquet", "part-000001.parquet", "part-000002-g1.parquet"));
  EXPECT_EQ(texts(*read_table(output() + "/part-000002-g1.parquet"), "key"), (std::vector<std::string>{"000000000010"}));
  EXPECT_EQ(texts(*read_table(output() + "/part-000002-g1.parquet"), "image"), (std::vector<std::string>{numbered_png(7)}));
  for (const std::string& name : names(output())) {
    EXPECT_TRUE(verify_shard(local_files(), output() + "/" + name).is_ok()) << name;
  }
  EXPECT_EQ(web_.web().num_requests(), 12);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_summary.json"))["rows_out"], 8);
  const auto parts = part_bytes(output());
  download(options(output()));  // Known to be unique by now.
  std::filesystem::remove(output() + "/_unique.json");
  download(options(output()));
  EXPECT_EQ(part_bytes(output()), parts);
  EXPECT_EQ(web_.web().num_requests(), 12);
}

TEST_F(RepeatedContents, order_of_work_memory_and_restarts_change_no_byte) {
  std::vector<int> pictures;
  for (int i = 0; i < 50; ++i) {  // 13 parts, which little memory hashes eight at a time, and one after the other.
    pictures.push_back(i * i % 11);
  }
  add_all(pictures);
  web_.start();
  download(options(output("whole")));
  const auto whole = part_bytes(output("whole"));
  DownloadOptions backwards = options(output("backwards"));
  backwards.memory_bytes = 20'000;
  for (int64_t item = 12; item >= 0; --item) {
    backwards.selection.items = {item};
    download(backwards);
    EXPECT_EQ(duplicates(backwards.output).empty(), item > 0) << "before the last item has its part";
  }
  EXPECT_EQ(part_bytes(backwards.output), whole);
}

TEST_F(RepeatedContents, a_death_at_any_moment_loses_and_doubles_nothing) {
  add_all({0, 1, 0, 2, 3, 1, 5, 6});
  web_.start();
  DownloadOptions clean = options(output("clean"));
  download(clean);
  const auto parts = part_bytes(output("clean"));
  bool finished_at_once = false;
  int64_t num_deaths = 0;
  for (int64_t call = 0; !finished_at_once; call += 2 * kCaseStride) {
    const std::string folder = output(std::to_string(call));
    files_.fail_call(call, Fault::kDeath);
    finished_at_once = run_download(stores_, options(faulty(folder)), {}).is_ok();
    files_.heal();
    num_deaths += finished_at_once ? 0 : 1;
    const auto resumed = run_download(stores_, options(faulty(folder)), {});
    ASSERT_TRUE(resumed.is_ok()) << call << ": " << resumed.status().to_string();
    EXPECT_EQ(resumed->rows_out, 6);
    EXPECT_EQ(part_bytes(folder), parts) << "died at call " << call;
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(num_deaths, 10 / kCaseStride);
}

TEST_F(RepeatedContents, a_row_that_comes_late_takes_its_picture_back) {
  add(0, {{"trouble", "status"}, {"status", 503}, {"times", 1}});
  add_all({1, 2, 3, 4, 0, 5});
  web_.start();
  DownloadOptions kept = options(output());
  kept.keep_failed = true;
  EXPECT_EQ(download(kept).rows_by_error, (RowsByError{{"http_503", 1}}));
  kept.retry_failed = RetryCodes::parse("http_503").value();
  const StageSummary summary = download(kept);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"duplicate", 1}}));
  EXPECT_EQ(duplicates(output()), (std::vector<int64_t>{5}));
  EXPECT_THAT(names(output()), ElementsAre("part-000000-g1.parquet", "part-000001-g1.parquet"));
  EXPECT_EQ(texts(*read_table(output() + "/part-000001-g1.parquet"), "error"), (std::vector<std::string>{"(null)", "duplicate", "(null)"}));
}

TEST_F(RepeatedContents, both_kinds_of_duplicates_go_together_and_belong_to_the_job) {
  add_all({0, 1, 0});
  web_.start();
  DownloadOptions both = options(output());
  both.dedup.url = true;
  EXPECT_EQ(download(both).rows_by_error, (RowsByError{{"duplicate", 1}}));
  both.dedup.content = false;
  const Status status = run_download(stores_, both, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("dedup_content (had true, asked for null)"));
}

TEST_F(RepeatedContents, a_limit_leaves_them_to_the_run_that_makes_the_last_part) {
  add_all({0, 1, 0, 2, 2, 3});
  web_.start();
  DownloadOptions limited = options(output());
  limited.selection.limit = 5;
  EXPECT_EQ(download(limited).rows_out, 5);
  EXPECT_EQ(download(options(output())).rows_out, 4);
  EXPECT_EQ(duplicates(output()), (std::vector<int64_t>{2, 4}));
}

TEST(RepeatedContentsOfMany, are_not_looked_for_where_a_bit_a_row_is_too_much) {
  MemoryFileSystem files;
  const auto store = make_posix_store(files, "memory");
  add_input(files, "a.parquet", 23);
  const auto plan = plan_job(*store).value();
  const Status status = find_repeated_contents(*plan, 1, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("repeated pictures"), std::string::npos) << status.message();
  EXPECT_TRUE(check_row_count(*plan, "pictures", 2).is_ok());
}

}  // namespace
}  // namespace darkroom
