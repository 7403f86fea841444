// Which rows and items a download does, and where what waits for them lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "download_fixture.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DownloadSelection : public DownloadTest {
 protected:
  void start_web(int num_pictures, size_t padding = 0) {
    for (int i = 0; i < num_pictures; ++i) {
      web_.add_picture(i);
      web_.add_file("picture" + std::to_string(i) + ".png", numbered_png(i) + std::string(padding, 'x'));
    }
    web_.start();
  }
  PartRecord record(const std::string& part) const {
    return read_part_record(Location{.store = &local_store(), .path = output()} / part).value();
  }
};

TEST_F(DownloadSelection, a_condition_drops_rows_before_they_count) {
  start_web(23);
  DownloadOptions options = web_.options(output());
  options.where = "WIDTH >= 5 and WIDTH<13";
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_in, 8);
  EXPECT_EQ(summary.rows_out, 8);
  EXPECT_EQ(summary.rows_filtered, 15);
  EXPECT_EQ(summary.rows_this_run, 23);
  for (const StageSnapshot& stage : summary.stages) {
    EXPECT_EQ(stage.num_rows, 8) << stage.name;
  }
  EXPECT_EQ(summary.num_parts, 3) << "an item covers its input rows, whatever is kept of them";
  EXPECT_EQ(web_.web().num_requests(), 8);
  EXPECT_THAT(texts(*read_table(output() + "/part-000001.parquet"), "key"), ElementsAre("000000000010", "000000000011", "000000000012"));
  EXPECT_EQ(read_table(output() + "/part-000002.parquet")->num_rows(), 0);
  EXPECT_EQ(record("part-000000.parquet").tally.rows_filtered, 5);
  EXPECT_EQ(record("part-000002.parquet").tally.rows_filtered, 3);
  EXPECT_EQ(download(options).rows_this_run, 0);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_summary.json"))["rows_filtered"], 15);
  EXPECT_EQ(summary.to_json()["rows_filtered"], 15);
  EXPECT_THAT(summary.to_text("download"), HasSubstr("15 left out by the condition"));
}

TEST_F(DownloadSelection, failed_rows_keep_their_numbers_behind_rows_that_were_dropped) {
  for (int i = 0; i < 4; ++i) {
    web_.add_picture(i);
  }
  web_.add_url("nonsense", "not a URL");
  web_.start();
  DownloadOptions options = web_.options(output());
  options.where = "WIDTH > 1";
  EXPECT_EQ(download(options).rows_by_error, (RowsByError{{"bad_url", 1}}));
  EXPECT_EQ(record("part-000000.parquet").tally.failed_rows, (std::map<std::string, std::vector<int64_t>>{{"bad_url", {4}}}));
}

TEST_F(DownloadSelection, another_condition_is_another_job_and_another_way_to_write_it_is_not) {
  start_web(5);
  DownloadOptions options = web_.options(output());
  options.where = "WIDTH < 3";
  download(options);
  options.where = " (WIDTH<3.0) ";
  EXPECT_EQ(download(options).rows_this_run, 0);
  for (const char* other : {"", "WIDTH < 4"}) {
    options.where = other;
    const Status status = failure(options);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << other;
    EXPECT_THAT(status.message(), HasSubstr("where (had \"WIDTH < 3\""));
  }
}

TEST_F(DownloadSelection, a_condition_that_cannot_be_asked_is_refused_before_anything_is_written) {
  start_web(1);
  DownloadOptions options = web_.options(output());
  options.where = "WIDTH <";
  EXPECT_EQ(failure(options).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(failure(options).message(), HasSubstr("--where"));
  options.where = "aesthetic > 5";
  const Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("punsafe"));
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(DownloadSelection, a_limit_counts_rows_before_the_condition) {
  start_web(23);
  DownloadOptions options = web_.options(output());
  options.where = "WIDTH >= 5 AND WIDTH < 13";
  options.selection.limit = 12;
  EXPECT_EQ(download(options).rows_in, 7);
  options.selection.limit = -1;
  EXPECT_EQ(download(options).rows_in, 8);
  const auto in_two_steps = part_bytes(output());
  options.output = output("at-once");
  download(options);
  EXPECT_EQ(part_bytes(output("at-once")), in_two_steps);
}

TEST_F(DownloadSelection, items_by_number_make_the_parts_of_a_whole_run) {
  start_web(47);
  download(web_.options(output("whole")));
  DownloadOptions options = web_.options(output());
  options.selection.items = {1, 3};
  const StageSummary summary = download(options);
  EXPECT_EQ(summary.rows_in, 20);
  EXPECT_EQ(part_bytes(output()).size(), 2u);
  options.selection.items = {0, 2, 4};
  download(options);
  EXPECT_EQ(part_bytes(output()), part_bytes(output("whole")));
  options.selection.items = {5};
  const Status status = failure(options);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("--items"));
}

// Memory for a few pictures, a first row that comes late, and room on disk for all, some, one or none that wait for it.
TEST_F(DownloadSelection, bytes_do_not_depend_on_where_pictures_wait) {
  web_.add_file("picture0.png", numbered_png(0));
  web_.add_trouble("busy", {{"trouble", "status"}, {"status", 503}, {"times", 4}});
  start_web(60, 20'000);
  DownloadOptions options = web_.options(output("plenty"));
  options.fetch.num_retries = 8;
  options.fetch.first_backoff = std::chrono::milliseconds(20);
  options.rows_per_file = 25;
  download(options);
  const auto plenty = part_bytes(options.output);
  options.memory_bytes = 200'000;
  options.scratch_folder = folder_.path("scratch");
  for (const int64_t scratch_bytes : {int64_t{1} << 30, int64_t{50'000}, int64_t{1}, int64_t{0}, int64_t{-1}}) {
    options.output = output("scratch" + std::to_string(scratch_bytes));
    EXPECT_EQ(download(options).rows_out, 61) << scratch_bytes;
    EXPECT_EQ(part_bytes(options.output), plenty) << scratch_bytes;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("scratch"))) << "its files have no names";
}

TEST_F(DownloadSelection, a_scratch_folder_that_was_named_has_to_work) {
  start_web(3);
  write_bytes(folder_.path("file"), "no folder");
  DownloadOptions options = web_.options(output());
  options.scratch_folder = folder_.path("file");
  const Status status = failure(options);
  EXPECT_FALSE(status.is_ok());
  EXPECT_THAT(status.message(), HasSubstr("--scratch"));
  options.scratch_bytes = 0;
  EXPECT_EQ(download(options).rows_out, 3);
}

TEST_F(DownloadSelection, a_summary_names_hosts_and_items) {
  web_.add_url("HTTP://Nobody.TEST:80/a?b", "no such name");
  web_.add_url("http://user:secret@127.0.0.1/", "refused, and not repeated");
  start_web(12);
  DownloadOptions options = web_.options(output());
  options.fetch.num_retries = 0;
  const StageSummary summary = download(options);
  ASSERT_EQ(summary.hosts.size(), 2u);
  EXPECT_EQ(summary.hosts[0].host, "127.0.0.1");
  EXPECT_EQ(summary.hosts[0].num_rows, 12);
  EXPECT_EQ(summary.hosts[0].num_failed, 0);
  EXPECT_GT(summary.hosts[0].seconds, 0.0);
  EXPECT_EQ(summary.hosts[1].host, "nobody.test");
  EXPECT_EQ(summary.hosts[1].num_failed, 1);
  EXPECT_EQ(summary.to_json()["hosts"][1]["rows_failed"], 1);
  EXPECT_EQ(summary.to_json().dump().find("secret"), std::string::npos);
  EXPECT_EQ(summary.num_items, 2);
  options.selection.items = {0};
  options.output = output("none");
  options.dry_run = true;
  EXPECT_EQ(download(options).num_pending, 1);
}

// The first items' rows are decoded once for all, and a batch may end in another item than it begins in.
TEST_F(DownloadSelection, items_that_are_read_on_are_those_that_are_read_alone) {
  start_web(47);
  DownloadOptions options = web_.options(output());
  options.rows_per_file = 3;
  options.where = "WIDTH != 7 AND WIDTH != 8 AND WIDTH != 6 AND WIDTH != 44";
  EXPECT_EQ(download(options).rows_filtered, 4);
  options.output = output("alone");
  for (int64_t item = 0; item < 16; ++item) {
    options.selection.items = {item};
    download(options);
  }
  EXPECT_EQ(part_bytes(output("alone")), part_bytes(output()));
}

}  // namespace
}  // namespace darkroom
