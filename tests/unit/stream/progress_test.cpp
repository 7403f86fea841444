#include "darkroom/stream/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "support/no_new_threads.h"
#include "support/said_by_child.h"
#include "support/terminal_screen.h"

namespace darkroom {
namespace {

TEST(Progress, a_line_names_rows_rates_queue_eta_and_errors_by_frequency) {
  const ProgressState state{.rows_done = 300,
                            .rows_total = 1000,
                            .rows_before = 100,
                            .num_bytes = 40'000'000,
                            .queue_depth = 7,
                            .rows_by_error = {{"http_404", 2}, {"timeout", 5}}};
  EXPECT_EQ(format_progress("download", state, {.rows = 100, .bytes = 20e6}),
            "download 300/1000 rows (30.0%), 100.0 rows/s, 20.0 MB/s, queue 7, ETA 0:07, errors: timeout 5, http_404 2");
}

TEST(Progress, an_unknown_total_gives_no_share_and_no_eta) {
  EXPECT_EQ(format_progress("read", {.rows_done = 5}, {.rows = 5}), "read 5 rows, 5.0 rows/s, 0.0 MB/s, queue 0");
}

TEST(Progress, where_nothing_gets_on_there_is_no_eta) {
  EXPECT_EQ(format_progress("read", {.rows_done = 3, .rows_total = 10}, {}), "read 3/10 rows (30.0%), 0.0 rows/s, 0.0 MB/s, queue 0");
}

TEST(Progress, a_job_that_moves_no_bytes_shows_neither_their_rate_nor_a_queue) {
  EXPECT_EQ(format_progress("sample", {.rows_done = 4, .rows_total = 10, .num_bytes = -1}, {.rows = 2}),
            "sample 4/10 rows (40.0%), 2.0 rows/s, ETA 0:03");
}

constexpr RateWindow::Time kStart{std::chrono::hours(5)};

TEST(Progress, rates_are_those_of_the_last_minute_and_of_this_run) {
  ProgressMeter meter(kStart);
  ProgressState state{.rows_done = 5000, .rows_total = 10'000, .rows_before = 5000};
  EXPECT_EQ(meter.look(kStart, state).rows, 0);
  state.rows_done += 20;
  state.num_bytes = 400;
  ProgressRates rates = meter.look(kStart + std::chrono::seconds(2), state);
  EXPECT_EQ(rates.rows, 10) << "rows found done do not count";
  EXPECT_EQ(rates.bytes, 200);
  EXPECT_THAT(rates.stages, ::testing::IsEmpty());
  state.rows_done += 1000;  // By others, which this run finds done.
  state.rows_before += 1000;
  EXPECT_EQ(meter.look(kStart + std::chrono::seconds(4), state).rows, 5);
  rates = meter.look(kStart + std::chrono::seconds(64), state);
  EXPECT_EQ(rates.rows, 0);
  EXPECT_EQ(rates.bytes, 0);
}

TEST(Progress, a_job_without_bytes_has_no_rate_of_them) {
  ProgressMeter meter(kStart);
  EXPECT_EQ(meter.look(kStart + std::chrono::seconds(1), {.num_bytes = -1}).bytes, 0);
}

TEST(Progress, a_load_is_told_once_half_of_the_workers_time_is_accounted_for) {
  ProgressMeter meter(kStart);
  ProgressState state{.stages = {{.name = "commit", .num_workers = 2, .busy_seconds = 9}}};
  EXPECT_EQ(meter.look(kStart + std::chrono::seconds(10), state).stages.at(0).busy_share, std::nullopt);
  state.stages[0].starved_seconds = 3;
  EXPECT_EQ(meter.look(kStart + std::chrono::seconds(12), state).stages.at(0).busy_share, 0.75);
}

TEST(Progress, a_stages_rates_and_load_are_those_of_the_last_minute) {
  ProgressMeter meter(kStart);
  ProgressState state{.stages = {{.name = "read"}, {.name = "write", .num_workers = 2}}};
  EXPECT_EQ(meter.look(kStart, state).stages.at(1).busy_share, std::nullopt);
  state.stages[1] = {
      .name = "write", .num_workers = 2, .num_rows = 30, .num_bytes = 600, .busy_seconds = 15, .blocked_seconds = 2, .starved_seconds = 3};
  ProgressRates rates = meter.look(kStart + std::chrono::seconds(10), state);
  ASSERT_EQ(rates.stages.size(), 2u);
  EXPECT_EQ(rates.stages[0].rows, 0);
  EXPECT_EQ(rates.stages[0].busy_share, std::nullopt);
  EXPECT_EQ(rates.stages[1].rows, 3);
  EXPECT_EQ(rates.stages[1].bytes, 60);
  EXPECT_EQ(rates.stages[1].busy_share, 0.75);
  state.stages[1].starved_seconds += 120;
  rates = meter.look(kStart + std::chrono::seconds(70), state);
  EXPECT_EQ(rates.stages[1].rows, 0);
  EXPECT_EQ(rates.stages[1].busy_share, 0);
  EXPECT_EQ(meter.look(kStart + std::chrono::seconds(130), state).stages[1].busy_share, std::nullopt) << "no change in a whole window";
}

/// A download that goes on: 1500 of 4000 rows are done, a thousand of them by an earlier run.
ProgressState download_state() {
  const StageSnapshot read{.name = "read", .num_workers = 1, .num_rows = 600, .num_bytes = 1};
  const StageSnapshot inspect{
      .name = "inspect", .num_workers = 16, .num_rows = 550, .num_bytes = 70'000'000, .queue_depth = 3, .queue_capacity = 64};
  const StageSnapshot commit{.name = "commit", .num_workers = 1, .queue_depth = 0, .queue_capacity = 4};
  return {.rows_done = 1500,
          .rows_total = 4000,
          .rows_before = 1000,
          .num_bytes = 70'000'000,
          .queue_depth = 12,
          .stages = {read, inspect, commit}};
}
const ProgressRates kDownloadRates{
    .rows = 50, .bytes = 7e6, .stages = {{.rows = 60, .busy_share = 0.05}, {.rows = 55.25, .bytes = 7e6, .busy_share = 0.426}, {}}};

TEST(Progress, a_pipeline_has_a_line_for_each_stage_and_the_jobs_last) {
  EXPECT_EQ(format_progress_lines("download", download_state(), kDownloadRates, 80),
            "read     600 rows  60.0 rows/s  0.0 MB/s                busy 5% of 1\n"
            "inspect  550 rows  55.2 rows/s  7.0 MB/s  queue 3/64  busy 43% of 16\n"
            "commit     0 rows   0.0 rows/s             queue 0/4\n"
            "download 1500/4000 rows (37.5%), 50.0 rows/s, 7.0 MB/s, queue 12, ETA 0:50");
}

TEST(Progress, a_wide_terminals_stages_have_bars_of_what_this_run_has_to_do) {
  ProgressState state = download_state();
  state.rows_filtered = 1000;
  EXPECT_EQ(format_progress_lines("download", state, kDownloadRates, 110),
            "read     [###-------]  600/2000 rows  60.0 rows/s  0.0 MB/s                busy 5% of 1\n"
            "inspect  [##--------]  550/2000 rows  55.2 rows/s  7.0 MB/s  queue 3/64  busy 43% of 16\n"
            "commit   [----------]    0/2000 rows   0.0 rows/s             queue 0/4\n"
            "download [###-------] 1500/4000 rows (37.5%), 50.0 rows/s, 7.0 MB/s, queue 12, ETA 0:50");
}

TEST(Progress, stages_of_an_unknown_total_or_of_nothing_to_do_have_no_bars) {
  ProgressState state = download_state();
  state.stages.resize(1);
  const std::string want = "read  600 rows  60.0 rows/s  0.0 MB/s  busy 5% of 1\n";
  state.rows_total = 0;
  EXPECT_EQ(format_progress_lines("x", state, kDownloadRates, 200), want + format_progress_bar("x", state, kDownloadRates, 200));
  state.rows_total = state.rows_before;
  EXPECT_EQ(format_progress_lines("x", state, kDownloadRates, 200), want + format_progress_bar("x", state, kDownloadRates, 200));
}

TEST(Progress, a_job_without_stages_has_its_line_alone) {
  const ProgressState state{.rows_done = 3, .rows_total = 10};
  EXPECT_EQ(format_progress_lines("sample", state, {}, 200), format_progress_bar("sample", state, {}, 200));
}

TEST(Progress, times_are_written_alike_everywhere) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(8.2), "0:09");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3600), "1:00:00");
  EXPECT_EQ(clock_text(11225), "3:07:05");
  EXPECT_EQ(clock_text(-1), "0:00");
  EXPECT_EQ(clock_text(1e300), clock_text(1e9));
}

TEST(Progress, a_wide_terminal_gets_a_bar_and_a_narrow_one_none) {
  const ProgressState state{.rows_done = 300, .rows_total = 1000};
  EXPECT_EQ(format_progress_bar("x", state, {}, 110).substr(0, 19), "x [###-------] 300/");
  EXPECT_EQ(format_progress_bar("x", state, {}, 20), format_progress("x", state, {}));
  EXPECT_EQ(format_progress_bar("x", {.rows_done = 3}, {}, 200), format_progress("x", {.rows_done = 3}, {}));
  EXPECT_EQ(draw_bar(0, 4), "[----]");
  EXPECT_EQ(draw_bar(1.5, 4), "[####]");
  EXPECT_EQ(draw_bar(1.5, 20), "[" + std::string(20, '#') + "]");
  EXPECT_EQ(bar_width(1), 0);
}

// On a pipe it reports every ten seconds, so one that is not woken ends no earlier.
TEST(Progress, a_reporter_ends_at_once) {
  const auto start_and_end = [] {
    for (int i = 0; i < 20; ++i) {  // Its thread may not have begun to wait, or have.
      const ProgressReporter reporter("x", [] { return ProgressState(); });
    }
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(said_by_child(ChildStderr::kPipe, start_and_end), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Progress, a_reporter_without_a_thread_shows_nothing) {
  const NoNewThreads none;
  EXPECT_NO_THROW(const ProgressReporter reporter("x", [] { return ProgressState(); }));
}

// What stderr is, a process asks only once: whoever starts a reporter here does it in a child.

// Reports until `state` was asked twice, so what was said first is out.
void report_twice(const ProgressState& state) {
  std::atomic<int> num_asked = 0;
  const ProgressReporter reporter("work", [&] {
    ++num_asked;
    num_asked.notify_one();
    return state;
  });
  num_asked.wait(0);
  num_asked.wait(1);
}

TEST(Progress, a_terminal_shows_one_line_that_is_removed_at_the_end) {
  const std::string said = said_by_child(ChildStderr::kTerminal, [] { report_twice({.rows_done = 5}); });
  EXPECT_THAT(said, ::testing::MatchesRegex("(\r\x1b\\[2Kwork 5 rows[^\r\n]*)+\r\x1b\\[2K"));
}

TEST(Progress, a_terminal_shows_a_line_for_each_stage_until_the_end) {
  const std::string said = said_by_child(ChildStderr::kTerminal, [] {
    report_twice({.rows_done = 5, .stages = {{.name = "read", .num_rows = 7}, {.name = "write", .num_rows = 6}}});
  });
  EXPECT_THAT(said, ::testing::MatchesRegex("\r\x1b\\[2K(read   7 rows[^\r\n]*\nwrite  6 rows[^\r\n]*\nwork 5 rows[^\r\n]*"
                                            "\r\x1b\\[2A\x1b\\[J)+"));
  TerminalScreen screen(24, 80);
  screen.write(said);
  EXPECT_THAT(screen.rows(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace darkroom
