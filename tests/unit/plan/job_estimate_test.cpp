#include "darkroom/plan/job_estimate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Round figures, so that every result can be worked out by hand.
Catalogue round_catalogue() {
  Catalogue catalogue;
  const struct {
    const char* name;
    double low, high;
  } all[] = {{"picture_bytes", 100'000, 200'000},          {"good_rows_percent", 50, 100},
             {"fetch_rows_per_core_second", 100, 1000},    {"line_bytes_per_second", 1e6, 1e9},
             {"transform_rows_per_core_second", 100, 100}, {"storage_dollars_per_gib_month", 0.02, 0.02},
             {"dollars_per_thousand_writes", 5, 5},        {"dollars_per_thousand_reads", 1, 1}};
  for (const auto& figure : all) {
    catalogue.ranges.push_back(
        {figure.name, {figure.low, figure.high}, fmt::format("unit of {}", figure.name), {"round", "2026-01-02", "by hand"}});
  }
  return catalogue;
}

JobOutlook outlook_of(int64_t num_rows, int64_t num_pending) {
  return {.num_items = 2 * num_pending,
          .num_pending = num_pending,
          .num_rows = num_rows,
          .num_inputs = 1,
          .good_percent = {{50, 100}, "half or all"},
          .row_bytes = {{1000, 3000}, "small rows"},
          .rows_per_second = {{10, 100}, "slow or fast"}};
}

TEST(Range, rates_meet) {
  EXPECT_EQ(slower_of({1, 10}, {2, 5}), (Range{1, 5}));
  EXPECT_EQ(shared_by({10, 30}, {10, 60}), (Range{5, 20}));
  EXPECT_EQ(shared_by({0, 30}, {10, 0}), (Range{0, 0}));
}

TEST(JobEstimate, parts_that_are_written_anew_for_a_few_rows_count_whole) {
  StageSummary summary;
  summary.num_items = 10;
  summary.num_pending = 2;
  summary.pending_work = {.num_rows = 3, .part_rows_in = 100'000, .part_rows_out = 99'000, .rewritten_bytes = 2'000'000'000};
  const JobOutlook outlook = download_outlook(summary, round_catalogue(), 4).value();
  EXPECT_EQ(outlook.good_percent.value, (Range{0, 100})) << "the other rows tell nothing of those that failed";
  const JobEstimate got = estimate_job(outlook, round_catalogue()).value();
  EXPECT_DOUBLE_EQ(got.bytes_out.low, 2e9);
  EXPECT_DOUBLE_EQ(got.bytes_in.low, 2e9);
}

TEST(JobEstimate, rows_bytes_and_hours_go_from_the_best_case_to_the_worst) {
  const struct {
    int64_t rows, items;
    Range rows_out, bytes_out, hours;
  } cases[] = {{0, 0, {0, 0}, {0, 0}, {0, 0}},
               {1, 1, {0.5, 1}, {500, 3000}, {1.0 / 360'000, 1.0 / 36'000}},
               {360'000, 36, {180'000, 360'000}, {1.8e8, 1.08e9}, {1, 10}},
               {2'000'000'000, 200'000, {1e9, 2e9}, {1e12, 6e12}, {2e9 / 360'000, 2e9 / 36'000}}};
  for (const auto& want : cases) {
    SCOPED_TRACE(want.rows);
    const JobEstimate got = estimate_job(outlook_of(want.rows, want.items), round_catalogue()).value();
    EXPECT_DOUBLE_EQ(got.rows_out.low, want.rows_out.low);
    EXPECT_DOUBLE_EQ(got.rows_out.high, want.rows_out.high);
    EXPECT_DOUBLE_EQ(got.bytes_out.low, want.bytes_out.low);
    EXPECT_DOUBLE_EQ(got.bytes_out.high, want.bytes_out.high);
    EXPECT_DOUBLE_EQ(got.hours.low, want.hours.low);
    EXPECT_DOUBLE_EQ(got.hours.high, want.hours.high);
    EXPECT_EQ(got.writes, (Range{0, 0})) << "disks count no requests";
    EXPECT_EQ(got.dollars_per_month, (Range{0, 0}));
  }
}

TEST(JobEstimate, a_part_is_one_put_or_the_parts_of_an_upload) {
  const struct {
    double part_bytes;
    double writes;  // Of each of ten items, its claim left aside.
  } cases[] = {{1, 1}, {kObjectPartBytes, 1}, {kObjectPartBytes + 1, 4}, {3.0 * kObjectPartBytes, 5}, {3.5 * kObjectPartBytes, 6}};
  const auto writes_of = [](double part_bytes) {
    JobOutlook outlook = outlook_of(10, 10);
    outlook.good_percent.value = {100, 100};
    outlook.row_bytes.value = {part_bytes, part_bytes};
    outlook.writes_objects = true;
    return estimate_job(outlook, round_catalogue())->writes.low;
  };
  const double besides = writes_of(1) - 10;  // Claims, the job's own files.
  EXPECT_GT(besides, 0);
  for (const auto& want : cases) {
    EXPECT_DOUBLE_EQ(writes_of(want.part_bytes) - besides, 10 * want.writes) << want.part_bytes;
  }
}

TEST(JobEstimate, requests_and_what_is_kept_have_their_prices) {
  JobOutlook outlook = outlook_of(1'000'000, 100);
  outlook.good_percent.value = {100, 100};
  outlook.row_bytes.value = {double{1 << 30} / 10'000, double{1 << 30} / 10'000};  // 100 GiB in all.
  outlook.writes_objects = true;
  const JobEstimate got = estimate_job(outlook, round_catalogue()).value();
  EXPECT_DOUBLE_EQ(got.dollars_per_month.low, 2);
  EXPECT_DOUBLE_EQ(got.dollars_per_month.high, 2);
  EXPECT_DOUBLE_EQ(got.dollars_for_requests.low, got.writes.low * 5e-3 + got.reads.low * 1e-3);
  EXPECT_DOUBLE_EQ(got.dollars_for_requests.high, got.writes.high * 5e-3 + got.reads.high * 1e-3);
  EXPECT_LT(got.dollars_for_requests.low, got.dollars_for_requests.high);
  EXPECT_EQ(estimate_job(outlook, Catalogue()).status().code(), StatusCode::kFailedPrecondition);
}

TEST(JobEstimate, reading_from_a_store_costs_requests_without_a_price_for_keeping) {
  JobOutlook outlook = outlook_of(1000, 1);
  outlook.reads_objects = true;
  outlook.num_inputs = 3;
  outlook.input_bytes = 10 * kObjectPartBytes;
  const JobEstimate got = estimate_job(outlook, round_catalogue()).value();
  EXPECT_DOUBLE_EQ(got.reads.low, 10 + 6);
  EXPECT_GT(got.reads.high, got.reads.low);
  EXPECT_GT(got.dollars_for_requests.low, 0);
  EXPECT_EQ(got.dollars_per_month, (Range{0, 0}));
  EXPECT_FALSE(got.to_json().contains("dollars_per_month"));
}

TEST(JobEstimate, text_and_json_say_on_what_they_rest) {
  JobOutlook outlook = outlook_of(360'000, 36);
  EXPECT_THAT(estimate_job(outlook, round_catalogue())->to_text(),
              AllOf(HasSubstr("36 of 72 items, 360000 rows"), HasSubstr("180000 to 360000 rows come out"), HasSubstr("1 to 10 hours"),
                    HasSubstr("none, all is on disks"), HasSubstr("half or all"), HasSubstr("slow or fast"), Not(HasSubstr("dollars"))));
  outlook.writes_objects = true;
  const JobEstimate priced = estimate_job(outlook, round_catalogue()).value();
  EXPECT_THAT(priced.to_text(), AllOf(HasSubstr("dollars a month"), HasSubstr("2026-01-02, by hand")));
  const nlohmann::json json = priced.to_json();
  for (const char* key : {"items", "items_pending", "rows_pending", "rows_out", "bytes_in", "bytes_out", "hours", "requests_writing",
                          "requests_reading", "dollars_for_requests", "dollars_per_month", "assumptions"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["rows_out"]["high"], 360'000);
}

// -- what a dry run found -----------------------------------------------------------------------------------------------

StageSummary dry_run(int64_t num_rows) {
  StageSummary summary;
  summary.num_items = 10;
  summary.num_pending = 5;
  summary.pending_work = {.num_rows = num_rows, .num_inputs = 1, .input_bytes = 100 * num_rows};
  return summary;
}

TEST(DownloadOutlook, takes_sizes_and_shares_from_the_catalogue_where_the_job_does_not_tell) {
  const JobOutlook got = download_outlook(dry_run(1000), round_catalogue(), 4).value();
  EXPECT_EQ(got.num_pending, 5);
  EXPECT_EQ(got.good_percent.value, (Range{50, 100}));
  EXPECT_EQ(got.row_bytes_in.value, (Range{100'000, 200'000}));
  EXPECT_EQ(got.row_bytes.value, (Range{100'100, 200'100})) << "with the table's columns";
  // Slowest: the line of 1e6 bytes/s, every row a picture of 200,000. Fastest: four cores of 1,000.
  EXPECT_DOUBLE_EQ(got.rows_per_second.value.low, 5);
  EXPECT_DOUBLE_EQ(got.rows_per_second.value.high, 4000);
  EXPECT_THAT(got.good_percent.from, HasSubstr("by hand"));
  EXPECT_THAT(got.rows_per_second.from, AllOf(HasSubstr("4 cores"), HasSubstr("2026-01-02")));
}

TEST(DownloadOutlook, the_jobs_own_rows_tell_more_than_a_column_and_that_more_than_the_catalogue) {
  StageSummary summary = dry_run(1000);
  summary.pending_work.size_column = "bytes";
  summary.pending_work.sized_rows = 500;
  summary.pending_work.sized_bytes = 50'000;
  JobOutlook got = download_outlook(summary, round_catalogue(), 4).value();
  EXPECT_EQ(got.row_bytes_in.value, (Range{50'000, 50'000}));
  EXPECT_THAT(got.row_bytes_in.from, AllOf(HasSubstr("column bytes"), HasSubstr("500")));
  summary.pending_work.part_rows_in = 10'000;
  summary.pending_work.part_rows_out = 8'000;
  summary.pending_work.part_bytes = 8'000 * 70'000LL;
  got = download_outlook(summary, round_catalogue(), 4).value();
  EXPECT_EQ(got.row_bytes.value, (Range{70'000, 70'000}));
  EXPECT_NEAR(got.good_percent.value.low, 79.2, 0.01);  // 80 % and two standard errors of 0.4.
  EXPECT_NEAR(got.good_percent.value.high, 80.8, 0.01);
  summary.pending_work.part_rows_in = 99;  // Too few to tell.
  EXPECT_EQ(download_outlook(summary, round_catalogue(), 4)->good_percent.value, (Range{50, 100}));
  EXPECT_EQ(download_outlook(summary, Catalogue(), 4).status().code(), StatusCode::kFailedPrecondition);
}

TEST(DownloadOutlook, a_speed_that_was_measured_takes_the_place_of_the_assumed_one) {
  StageSummary summary = dry_run(7'200'000);
  JobOutlook got = download_outlook(summary, round_catalogue(), 4).value();
  EXPECT_FALSE(got.is_rate_measured);
  EXPECT_THAT(estimate_job(got, round_catalogue())->to_text(),
              AllOf(HasSubstr("by an estimated rate"), HasSubstr("assumed: the lower of")));
  summary.pending_work.run_rows = 1000;
  summary.pending_work.run_seconds = 5;
  got = download_outlook(summary, round_catalogue(), 4).value();
  EXPECT_EQ(got.rows_per_second.value, (Range{200, 200}));
  EXPECT_THAT(estimate_job(got, round_catalogue())->to_text(),
              AllOf(HasSubstr("time: 10 hours"), HasSubstr("by a measured rate"), HasSubstr("the last run of this job, 1000 rows in 5 s")));
  summary.pending_work.run_rows = 99;  // Too few to tell.
  EXPECT_FALSE(download_outlook(summary, round_catalogue(), 4)->is_rate_measured);
}

TEST(DownloadOutlook, a_job_that_is_named_tells_what_this_one_does_not) {
  StageSummary summary = dry_run(1000);
  summary.pending_work.run_rows = 1000;
  summary.pending_work.run_seconds = 5;
  const MeasuredRates measured{
      .from = "other", .download = MeasuredRate{.per_second = 50}, .picture_bytes = 70'000, .download_success = 0.8};
  JobOutlook got = download_outlook(summary, round_catalogue(), 4, measured).value();
  EXPECT_EQ(got.rows_per_second.value, (Range{50, 50}));
  EXPECT_EQ(got.rows_per_second.from, "measured by other");
  EXPECT_EQ(got.good_percent.value, (Range{80, 80}));
  EXPECT_EQ(got.row_bytes_in.value, (Range{70'000, 70'000}));
  summary.pending_work.part_rows_in = 10'000;
  summary.pending_work.part_rows_out = 10'000;
  summary.pending_work.part_bytes = 10'000 * 60'000LL;
  got = download_outlook(summary, round_catalogue(), 4, measured).value();
  EXPECT_EQ(got.good_percent.value, (Range{100, 100})) << "its own rows tell more";
  EXPECT_EQ(got.row_bytes_in.value, (Range{60'000, 60'000}));
  EXPECT_EQ(download_outlook(summary, round_catalogue(), 4, {.from = "a run"}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ProcessOutlook, decoding_and_encoding_share_the_cores) {
  StageSummary summary = dry_run(1000);
  summary.pending_work.encoded_row_bytes = 4096;
  summary.pending_work.encoder_rows_per_second_low = 50;
  summary.pending_work.encoder_rows_per_second_high = 100;
  summary.pending_work.num_encoders = 4;
  const JobOutlook got = process_outlook(summary, round_catalogue(), 4).value();
  EXPECT_EQ(got.row_bytes.value, (Range{4096, 4096}));
  EXPECT_EQ(got.good_percent.value, (Range{100, 100}));
  EXPECT_NEAR(got.rows_per_second.value.low, 400.0 * 200 / 600, 1e-9);
  EXPECT_NEAR(got.rows_per_second.value.high, 200, 1e-9);
  EXPECT_EQ(got.row_bytes_in.value, (Range{0, 0}));
  EXPECT_EQ(process_outlook(summary, Catalogue(), 4).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ProcessOutlook, a_gpu_leaves_the_cores_to_decoding) {
  StageSummary summary = dry_run(1000);
  summary.pending_work.encoder_rows_per_second_low = 300;
  summary.pending_work.encoder_rows_per_second_high = 2000;
  summary.pending_work.num_encoders = 1;
  summary.pending_work.encodes_on_gpu = true;
  const JobOutlook got = process_outlook(summary, round_catalogue(), 4).value();
  EXPECT_EQ(got.rows_per_second.value, (Range{300, 400}));
  EXPECT_THAT(got.rows_per_second.from,
              AllOf(HasSubstr("the lower of the GPU's encoder, just tried here at 300 to 2e+03 rows/s, and 4 cores "
                              "decoding and resizing at 100 to 100 rows/s each"),
                    Not(HasSubstr("same"))));
}

}  // namespace
}  // namespace darkroom
