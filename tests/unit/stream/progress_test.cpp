#include "darkroom/stream/progress.h"

#include <gtest/gtest.h>

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
            "download 300/1000 rows (30.0%), 100.0 rows/s, 20.0 MB/s, queue 7, ETA 7 s, errors: timeout 5, http_404 2");
}

TEST(Progress, an_unknown_total_gives_no_share_and_no_eta) {
  EXPECT_EQ(format_progress("read", {.rows_done = 5}, std::chrono::seconds(1)), "read 5 rows, 5.0 rows/s, 0.0 MB/s, queue 0");
}

TEST(Progress, no_time_and_no_rows_divide_nothing_by_zero) {
  EXPECT_EQ(format_progress("read", {.rows_total = 10}, std::chrono::seconds(0)), "read 0/10 rows (0.0%), 0.0 rows/s, 0.0 MB/s, queue 0");
}

TEST(Progress, a_reporter_ends_at_once) {
  const ProgressReporter reporter("x", [] { return ProgressState(); });
}

}  // namespace
}  // namespace darkroom
