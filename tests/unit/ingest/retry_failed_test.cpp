// download --retry-failed: the next generation of parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "darkroom/ingest/job_cleaning.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/verify_shard.h"
#include "download_fixture.h"
#include "support/fake_s3.h"
#include "support/rounds.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

using FailedRows = std::map<std::string, std::vector<int64_t>>;

class RetryFailed : public DownloadTest {
 protected:
  RetryFailed() {
    setenv("AWS_ACCESS_KEY_ID", s3_.keys.id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", s3_.keys.secret.c_str(), 1);
  }
  ~RetryFailed() override {
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
  }

  /// A row that fails with http_503 when it is first asked for, and comes the second time.
  void add_passing(const std::string& route) { web_.add_trouble(route, {{"trouble", "status"}, {"status", 503}, {"times", 1}}); }
  void add_gone(const std::string& route) { web_.add_trouble(route, {{"trouble", "status"}, {"status", 404}}); }
  /// Three items: rows 3, 7 and 12 fail with what passes, row 5 for good; the last item is good.
  void start_web() {
    add_pictures(3);
    add_passing("a");
    add_pictures(1);
    add_gone("gone");
    add_pictures(1);
    add_passing("b");
    add_pictures(4);
    add_passing("c");
    add_pictures(10);
    web_.start();
  }
  DownloadOptions options(const std::string& place) const {
    DownloadOptions options = web_.options(place);
    options.fetch.num_retries = 0;
    return options;
  }
  DownloadOptions retry(const std::string& place, const std::string& codes = "http_503") const {
    DownloadOptions retried = options(place);
    retried.retry_failed = RetryCodes::parse(codes).value();
    return retried;
  }
  PartRecord record(const std::string& folder, const std::string& name) {
    const auto record = read_part_record(Location{.store = &local_store(), .path = folder} / name);
    EXPECT_TRUE(record.is_ok()) << record.status().to_string();
    return record.is_ok() ? *record : PartRecord();
  }
  std::string in_bucket(const std::string& key) const {
    return fmt::format("s3://{}/{}?endpoint_override={}&scheme=http", FakeS3::kBucket, key, s3_.endpoint());
  }

  FakeS3 s3_;
};

TEST_F(RetryFailed, fetches_the_named_rows_only_and_keeps_the_others_bit_for_bit) {
  start_web();
  EXPECT_EQ(download(options(output())).rows_by_error, (RowsByError{{"http_404", 1}, {"http_503", 3}}));
  const auto before = part_bytes(output());
  const int64_t requests_before = web_.web().num_requests();
  const StageSummary summary = download(retry(output()));
  EXPECT_EQ(web_.web().num_requests() - requests_before, 3);
  EXPECT_EQ(summary.rows_this_run, 3);
  EXPECT_EQ(summary.rows_in, 23);
  EXPECT_EQ(summary.rows_out, 22);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"http_404", 1}}));
  EXPECT_EQ(summary.num_parts, 3);
  const auto after = part_bytes(output());
  EXPECT_THAT(names_of(after), ElementsAre("part-000000-g1.parquet", "part-000001-g1.parquet", "part-000002.parquet"));
  EXPECT_EQ(after.at("part-000002.parquet"), before.at("part-000002.parquet"));
  for (const char* name : {"part-000000.parquet", "part-000001.parquet"}) {
    EXPECT_EQ(read_bytes(output() + "/_superseded/" + name), before.at(name));
  }
  download(options(output("clean")));  // Every row that may come does so by now.
  for (const auto& [generation, clean] :
       {std::pair("part-000000-g1.parquet", "part-000000.parquet"), std::pair("part-000001-g1.parquet", "part-000001.parquet")}) {
    EXPECT_TRUE(verify_shard(local_files(), output() + "/" + generation).is_ok());
    const PartRecord retried = record(output(), generation);
    const PartRecord whole = record(output("clean"), clean);
    EXPECT_EQ(retried.content_hash, whole.content_hash) << generation;
    EXPECT_EQ(retried.fingerprint, whole.fingerprint);
    EXPECT_EQ(retried.tally.failed_rows, whole.tally.failed_rows);
    EXPECT_EQ(retried.tally.rows_in, whole.tally.rows_in);
    EXPECT_EQ(retried.tally.rows_out, whole.tally.rows_out);
  }
  EXPECT_EQ(record(output(), "part-000000-g1.parquet").generation, 1);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(output() + "/_summary.json"))["rows_out"], 22);
}

TEST_F(RetryFailed, a_job_without_such_rows_is_left_as_it_is) {
  start_web();
  download(options(output()));
  const auto before = part_bytes(output());
  const int64_t requests_before = web_.web().num_requests();
  EXPECT_EQ(download(retry(output(), "timeout,http_429,dns")).rows_this_run, 0);
  EXPECT_EQ(web_.web().num_requests(), requests_before);
  EXPECT_EQ(part_bytes(output()), before);
}

TEST_F(RetryFailed, a_usual_run_takes_the_newest_generation_as_done) {
  start_web();
  download(options(output()));
  download(retry(output()));
  const auto parts = part_bytes(output());
  std::filesystem::remove(output() + "/_summary.json");
  std::filesystem::remove(output() + "/_inputs.parquet");
  const int64_t requests_before = web_.web().num_requests();
  const StageSummary summary = download(options(output()));
  EXPECT_EQ(summary.rows_out, 22);
  EXPECT_EQ(web_.web().num_requests(), requests_before);
  EXPECT_EQ(part_bytes(output()), parts);
}

TEST_F(RetryFailed, rows_that_fail_again_keep_what_came_of_them) {
  web_.add_trouble("worse", {{"trouble", "status"}, {"status", 503}, {"times", 1}, {"file", "page.html"}});
  web_.add_file("page.html", "<html><body>no picture here at all, only text</body></html>");
  add_pictures(2);
  add_gone("gone");
  add_passing("good");
  web_.start();
  download(options(output()));
  EXPECT_EQ(record(output(), "part-000000.parquet").tally.failed_rows, (FailedRows{{"http_404", {3}}, {"http_503", {0, 4}}}));
  const StageSummary summary = download(retry(output(), "http_4xx,http_503"));
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"http_404", 1}, {"not_an_image", 1}}));
  const PartRecord retried = record(output(), "part-000000-g1.parquet");
  EXPECT_EQ(retried.tally.failed_rows, (FailedRows{{"http_404", {3}}, {"not_an_image", {0}}}));
  EXPECT_EQ(retried.tally.rows_in, 5);
  EXPECT_EQ(texts(*read_table(output() + "/part-000000-g1.parquet"), "key"),
            (std::vector<std::string>{"000000000001", "000000000002", "000000000004"}));
}

TEST_F(RetryFailed, kept_failed_rows_are_replaced_in_their_place) {
  start_web();
  DownloadOptions kept = options(output());
  kept.keep_failed = true;
  download(kept);
  const auto before = read_table(output() + "/part-000000.parquet");
  kept.retry_failed = RetryCodes::parse("http_503").value();
  download(kept);
  const auto after = read_table(output() + "/part-000000-g1.parquet");
  EXPECT_EQ(texts(*after, "key"), texts(*before, "key"));
  std::vector<std::string> errors(10, "(null)");
  errors[5] = "http_404";
  EXPECT_EQ(texts(*after, "error"), errors);
  EXPECT_EQ(texts(*after, "image")[5], "(null)");
  EXPECT_EQ(texts(*after, "image")[3], numbered_png(0));
  kept.retry_failed = {};
  kept.output = output("clean");
  download(kept);
  EXPECT_EQ(record(output(), "part-000000-g1.parquet").content_hash, record(output("clean"), "part-000000.parquet").content_hash);
}

TEST_F(RetryFailed, rows_that_a_condition_drops_stay_dropped) {
  start_web();
  DownloadOptions filtered = options(output());
  filtered.where = "WIDTH >= 5";  // The row's number.
  download(filtered);
  filtered.retry_failed = RetryCodes::parse("http_503").value();
  const StageSummary summary = download(filtered);
  EXPECT_EQ(summary.rows_filtered, 5);
  EXPECT_EQ(summary.rows_in, 18);
  EXPECT_EQ(summary.rows_out, 17);
  EXPECT_EQ(web_.web().num_requests("/a"), 0);
}

TEST_F(RetryFailed, a_round_that_was_cut_goes_on_and_the_next_command_begins_another) {
  add_gone("one");
  add_pictures(10);
  add_gone("two");
  web_.start();
  download(options(output()));
  DownloadOptions first = retry(output(), "http_404");
  first.selection.items = {0};
  download(first);  // As much of the round as a run does that is cut after its first item.
  EXPECT_EQ(web_.web().num_requests("/one"), 2);
  EXPECT_EQ(download(retry(output(), "http_404")).rows_this_run, 1);
  EXPECT_EQ(web_.web().num_requests("/one"), 2);
  EXPECT_EQ(web_.web().num_requests("/two"), 2);
  EXPECT_THAT(names_of(part_bytes(output())), ElementsAre("part-000000-g1.parquet", "part-000001-g1.parquet"));
  EXPECT_EQ(download(retry(output(), "http_404")).rows_this_run, 2);
  EXPECT_THAT(names_of(part_bytes(output())), ElementsAre("part-000000-g2.parquet", "part-000001-g2.parquet"));
  EXPECT_THAT(record(output(), "part-000001-g2.parquet").retried, ElementsAre(Pair("http_404", 2)));
  // Other codes have rounds of their own.
  EXPECT_EQ(download(retry(output(), "http_4xx")).rows_this_run, 2);
  EXPECT_THAT(record(output(), "part-000000-g3.parquet").retried, UnorderedElementsAre(Pair("http_404", 2), Pair("http_4xx", 1)));
  std::filesystem::remove(output() + "/_summary.json");
  EXPECT_EQ(download(retry(output(), "http_404")).rows_this_run, 2);
  EXPECT_THAT(record(output(), "part-000000-g4.parquet").retried, UnorderedElementsAre(Pair("http_404", 3), Pair("http_4xx", 1)));
  EXPECT_EQ(download(options(output())).rows_in, 12);
}

TEST_F(RetryFailed, items_without_a_whole_part_are_left) {
  start_web();
  DownloadOptions cut = options(output());
  cut.selection.limit = 13;
  download(cut);
  const StageSummary summary = download(retry(output()));
  EXPECT_EQ(summary.rows_in, 13);
  EXPECT_THAT(names_of(part_bytes(output())), ElementsAre("part-000000-g1.parquet", "part-000001-r00003.parquet"));
  EXPECT_EQ(download(options(output())).rows_out, 22);
  EXPECT_THAT(names_of(part_bytes(output())), ElementsAre("part-000000-g1.parquet", "part-000001.parquet", "part-000002.parquet"));
}

TEST_F(RetryFailed, a_dry_run_changes_nothing) {
  start_web();
  download(options(output()));
  const auto before = part_bytes(output());
  DownloadOptions dry = retry(output());
  dry.dry_run = true;
  EXPECT_EQ(download(dry).num_pending, 2);
  EXPECT_EQ(part_bytes(output()), before);
}

TEST_F(RetryFailed, a_death_at_any_moment_loses_and_doubles_nothing) {
  start_web();
  download(options(output("failed")));
  std::filesystem::copy(output("failed"), output("clean"), std::filesystem::copy_options::recursive);
  download(retry(output("clean")));
  const auto clean = part_bytes(output("clean"));
  bool finished_at_once = false;
  int64_t num_deaths = 0;
  for (int64_t call = 0; !finished_at_once; call += kCaseStride) {
    const std::string folder = output(std::to_string(call));
    std::filesystem::copy(output("failed"), folder, std::filesystem::copy_options::recursive);
    files_.fail_call(call, Fault::kDeath);
    finished_at_once = run_download(stores_, retry(faulty(folder)), {}).is_ok();
    files_.heal();
    num_deaths += finished_at_once ? 0 : 1;
    // At any instant our readers take one part an item, with every row that was good before.
    const auto readers = list_inputs(local_files(), folder);
    ASSERT_TRUE(readers.is_ok()) << readers.status().to_string();
    EXPECT_EQ(readers->size(), 3u) << "died at call " << call;
    const auto resumed = run_download(stores_, retry(faulty(folder)), {});
    ASSERT_TRUE(resumed.is_ok()) << call << ": " << resumed.status().to_string();
    EXPECT_EQ(resumed->rows_out, 22);
    EXPECT_EQ(part_bytes(folder), clean) << "died at call " << call;
    EXPECT_TRUE(std::filesystem::exists(folder + "/_superseded/part-000000.parquet"));
    EXPECT_TRUE(std::filesystem::exists(folder + "/_superseded/part-000001.parquet"));
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(num_deaths, 10 / kCaseStride);
}

TEST_F(RetryFailed, two_runs_at_once_make_one_generation) {
  start_web();
  download(options(output()));
  std::vector<StageSummary> summaries(2);
  {
    std::vector<std::jthread> runs;
    for (StageSummary& summary : summaries) {
      runs.emplace_back([&] { summary = download(retry(output())); });
    }
  }
  for (const StageSummary& summary : summaries) {
    EXPECT_EQ(summary.rows_in, 23);
    EXPECT_EQ(summary.rows_out, 22);
    EXPECT_EQ(summary.num_parts, 3);
  }
  EXPECT_THAT(names_of(part_bytes(output())), ElementsAre("part-000000-g1.parquet", "part-000001-g1.parquet", "part-000002.parquet"));
}

// A process that has lost its claim may publish a generation once more that was replaced and moved aside meanwhile.
TEST_F(RetryFailed, an_old_generation_that_comes_again_gives_way) {
  start_web();
  download(options(output()));
  download(retry(output()));
  const auto parts = part_bytes(output());
  const std::string first = read_bytes(output() + "/_superseded/part-000000.parquet");
  std::filesystem::copy_file(output() + "/_superseded/part-000001.parquet", output() + "/part-000000.parquet");
  EXPECT_EQ(list_inputs(local_files(), output())->size(), 3u);
  EXPECT_EQ(download(options(output())).rows_out, 22);
  EXPECT_EQ(part_bytes(output()), parts);
  EXPECT_EQ(read_bytes(output() + "/_superseded/part-000000.parquet"), first);
}

TEST_F(RetryFailed, cleaning_moves_what_a_death_left_beside_its_next_generation) {
  start_web();
  download(options(output()));
  download(retry(output()));
  std::filesystem::rename(output() + "/_superseded/part-000000.parquet", output() + "/part-000000.parquet");
  const CleanReport report = clean_job({.store = &local_store(), .path = output()}, system_clock()).value();
  EXPECT_EQ(report.num_moved_parts, 1);
  EXPECT_EQ(report.num_cut_parts, 0);
  EXPECT_THAT(report.to_text(), HasSubstr("1 older generations moved to _superseded/"));
  EXPECT_EQ(part_bytes(output()).size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(output() + "/_superseded/part-000000.parquet"));
}

TEST_F(RetryFailed, a_bucket_gets_the_generations_of_a_disk) {
  start_web();
  download(options(output()));
  for (const auto& [name, bytes] : part_bytes(output())) {
    const Location place = stores_.resolve(in_bucket("out/" + name), Access::kWrite).value();
    ASSERT_TRUE(place.store->replace_small(place.path, bytes).is_ok());
  }
  download(retry(output()));
  // The first tries of moving aside are cut after the copy, as by a death.
  int num_lost = 0;
  s3_.fault = [&](const FakeS3::Call& call) {
    return call.operation == "remove" && call.key == "out/part-000000.parquet" && num_lost++ < 1 ? FakeS3::Fault::kLostReply
                                                                                                 : FakeS3::Fault::kNone;
  };
  EXPECT_EQ(download(retry(in_bucket("out"))).rows_out, 22);
  const auto local = part_bytes(output());
  EXPECT_EQ(s3_.keys_below("out/part-").size(), local.size());
  for (const auto& [name, bytes] : local) {
    EXPECT_EQ(s3_.bytes_of("out/" + name), bytes) << name;
  }
  EXPECT_EQ(s3_.bytes_of("out/_superseded/part-000000.parquet"), read_bytes(output() + "/_superseded/part-000000.parquet"));
}

// On a store of objects a move is a copy, then a removal: a death between the steps, or between publication and move.
TEST_F(RetryFailed, a_bucket_as_a_death_leaves_it_has_one_part_an_item_for_readers_and_the_next_run) {
  start_web();
  ASSERT_EQ(download(options(in_bucket("out"))).rows_by_error, (RowsByError{{"http_404", 1}, {"http_503", 3}}));
  const std::string base = *s3_.bytes_of("out/part-000000.parquet");
  download(retry(in_bucket("out")));
  for (const bool is_copied : {false, true}) {
    SCOPED_TRACE(is_copied);
    const Location output = stores_.resolve(in_bucket("out"), Access::kWrite).value();
    ASSERT_TRUE(output.store->replace_small((output / "part-000000.parquet").path, base).is_ok());
    if (!is_copied) {
      ASSERT_TRUE(output.store->remove((output / "_superseded" / "part-000000.parquet").path).is_ok());
    }
    EXPECT_EQ(list_job_inputs(stores_, {in_bucket("out")})->size(), 3u);
    EXPECT_EQ(download(retry(in_bucket("out"))).rows_out, 22);
    EXPECT_THAT(s3_.keys_below("out/part-"),
                ElementsAre("out/part-000000-g1.parquet", "out/part-000001-g1.parquet", "out/part-000002.parquet"));
    EXPECT_EQ(s3_.bytes_of("out/_superseded/part-000000.parquet"), base);
  }
}

TEST_F(RetryFailed, a_base_that_is_not_what_its_record_says_is_named) {
  start_web();
  download(options(output()));
  const std::string part = output() + "/part-000000.parquet";
  const std::string good = read_bytes(part);
  std::string damaged = good;
  damaged[200] = static_cast<char>(~damaged[200]);  // Within a picture: the page's checksum says so.
  write_bytes(part, damaged);
  const Status status = failure(retry(output()));
  EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("part-000000.parquet"));
  EXPECT_THAT(part_bytes(output()), testing::Contains(Pair("part-000000.parquet", damaged)));
  write_bytes(part, good);
  EXPECT_EQ(download(retry(output())).rows_out, 22);
}

}  // namespace
}  // namespace darkroom
