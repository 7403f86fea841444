#include "darkroom/stream/rate_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using std::chrono::seconds;

// A moment so long after the clock's own beginning.
RateWindow::Time at(double since) {
  return RateWindow::Time(std::chrono::duration_cast<RateWindow::Time::duration>(std::chrono::duration<double>(since)));
}

TEST(RateWindow, without_two_samples_there_is_no_rate) {
  RateWindow window;
  EXPECT_EQ(window.per_second(), 0);
  window.add(at(5), 100);
  EXPECT_EQ(window.per_second(), 0);
  window.add(at(5), 200);
  EXPECT_EQ(window.per_second(), 0) << "at the same moment";
}

TEST(RateWindow, a_steady_total_has_its_rate_before_during_and_after_the_first_window) {
  RateWindow window(seconds(60));
  for (int second = 0; second <= 300; ++second) {
    window.add(at(1000 + second), 50 + 7.0 * second);
    EXPECT_EQ(window.per_second(), second == 0 ? 0 : 7) << second;
  }
}

TEST(RateWindow, a_total_that_stalls_is_slower_with_every_second_and_stands_after_a_window) {
  RateWindow window(seconds(60));
  window.add(at(0), 0);
  window.add(at(60), 600);
  for (int second = 61; second < 120; ++second) {
    window.add(at(second), 600);
    ASSERT_GT(window.per_second(), 0) << second;
    ASSERT_LT(window.per_second(), 10) << second;
  }
  window.add(at(120), 600);
  EXPECT_EQ(window.per_second(), 0);
  window.add(at(10'000), 600);
  EXPECT_EQ(window.per_second(), 0);
}

TEST(RateWindow, a_total_that_goes_on_after_a_stall_forgets_it_within_a_window) {
  RateWindow window(seconds(60));
  double total = 0;
  for (int second = 0; second <= 1000; ++second) {
    total += second > 500 ? 3 : 0;
    window.add(at(second), total);
    EXPECT_EQ(window.per_second(), 3 * std::clamp(second - 500, 0, 60) / 60.0) << second;
  }
}

TEST(RateWindow, samples_farther_apart_than_the_window_give_the_rate_between_them) {
  RateWindow window(seconds(60));
  window.add(at(0), 0);
  window.add(at(100), 1000);
  EXPECT_EQ(window.per_second(), 10);
  window.add(at(300), 1200);
  EXPECT_EQ(window.per_second(), 1);
}

TEST(RateWindow, a_total_that_shrinks_has_no_rate) {
  RateWindow window;
  window.add(at(0), 10);
  window.add(at(1), 5);
  EXPECT_EQ(window.per_second(), 0);
}

TEST(RateWindow, time_does_not_go_back) {
  RateWindow window;
  window.add(at(2), 0);
  EXPECT_THROW(window.add(at(1), 1), CheckFailure);
}

}  // namespace
}  // namespace darkroom
