#include "darkroom/stream/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/no_new_threads.h"
#include "support/said_by_child.h"

namespace darkroom {
namespace {

TEST(Progress, a_line_names_rows_rates_queue_eta_and_errors_by_frequency) {
  const ProgressState state{.rows_done = 300,
                            .rows_total = 1000,
                            .rows_before = 100,
                            .num_bytes = 40'000'000,
                            .queue_depth = 7,
                            .rows_by_error = {{"http_404", 2}, {"timeout", 5}}};
  EXPECT_EQ(format_progress("download", state, std::chrono::seconds(2)),
            "download 300/1000 rows (30.0%), 100.0 rows/s, 20.0 MB/s, queue 7, ETA 0:07, errors: timeout 5, http_404 2");
}

TEST(Progress, an_unknown_total_gives_no_share_and_no_eta) {
  EXPECT_EQ(format_progress("read", {.rows_done = 5}, std::chrono::seconds(1)), "read 5 rows, 5.0 rows/s, 0.0 MB/s, queue 0");
}

TEST(Progress, no_time_and_no_rows_divide_nothing_by_zero) {
  EXPECT_EQ(format_progress("read", {.rows_total = 10}, std::chrono::seconds(0)), "read 0/10 rows (0.0%), 0.0 rows/s, 0.0 MB/s, queue 0");
}

TEST(Progress, a_job_that_moves_no_bytes_shows_neither_their_rate_nor_a_queue) {
  EXPECT_EQ(format_progress("sample", {.rows_done = 4, .rows_total = 10, .num_bytes = -1}, std::chrono::seconds(2)),
            "sample 4/10 rows (40.0%), 2.0 rows/s, ETA 0:03");
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
  EXPECT_EQ(format_progress_bar("x", state, std::chrono::seconds(1), 110).substr(0, 19), "x [###-------] 300/");
  EXPECT_EQ(format_progress_bar("x", state, std::chrono::seconds(1), 20), format_progress("x", state, std::chrono::seconds(1)));
  EXPECT_EQ(format_progress_bar("x", {.rows_done = 3}, std::chrono::seconds(1), 200),
            format_progress("x", {.rows_done = 3}, std::chrono::seconds(1)));
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
void report_twice() {
  std::atomic<int> num_asked = 0;
  const ProgressReporter reporter("work", [&] {
    ++num_asked;
    num_asked.notify_one();
    return ProgressState{.rows_done = 5};
  });
  num_asked.wait(0);
  num_asked.wait(1);
}

TEST(Progress, a_terminal_shows_one_line_that_is_removed_at_the_end) {
  const std::string said = said_by_child(ChildStderr::kTerminal, report_twice);
  EXPECT_THAT(said, ::testing::MatchesRegex("(\r\x1b\\[2Kwork 5 rows[^\r\n]*)+\r\x1b\\[2K"));
}

}  // namespace
}  // namespace darkroom
