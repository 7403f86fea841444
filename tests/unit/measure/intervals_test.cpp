#include "darkroom/measure/intervals.h"

#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/core/check.h"
#include "measure_golden.h"

namespace darkroom {
namespace {

// Bisection ends at neighbouring doubles; scipy's own quantile is off by 1e-11 for one degree of freedom, whose value is cot(pi share).
constexpr double kRelative = 1e-10;

void expect_near(double got, double want) { EXPECT_NEAR(got, want, kRelative * std::max(1.0, std::abs(want))); }

TEST(Intervals, quantiles_are_those_of_scipy) {
  const auto golden = measure_golden("statistics.json");
  ASSERT_EQ(golden["student_t"].size(), 25U);
  for (const auto& row : golden["student_t"]) {
    SCOPED_TRACE(row.dump());
    expect_near(student_t_quantile(row[0], row[1]), row[2]);
  }
  for (const auto& row : golden["normal"]) {
    SCOPED_TRACE(row.dump());
    expect_near(normal_quantile(row[0]), row[1]);
  }
}

TEST(Intervals, a_binomial_interval_is_that_of_clopper_and_pearson) {
  const auto golden = measure_golden("statistics.json");
  ASSERT_EQ(golden["binomial"].size(), 12U);
  for (const auto& row : golden["binomial"]) {
    SCOPED_TRACE(row.dump());
    const Interval interval = binomial_interval(row[0], row[1], row[2]);
    expect_near(interval.low, row[3]);
    expect_near(interval.high, row[4]);
  }
}

TEST(Intervals, a_binomial_interval_without_trials_says_nothing) {
  EXPECT_EQ(binomial_interval(0, 0, 0.05).low, 0.0);
  EXPECT_EQ(binomial_interval(0, 0, 0.05).high, 1.0);
}

TEST(Intervals, the_sign_test_is_that_of_scipy) {
  const auto golden = measure_golden("statistics.json");
  ASSERT_EQ(golden["sign"].size(), 6U);
  for (const auto& row : golden["sign"]) {
    SCOPED_TRACE(row.dump());
    expect_near(sign_test_p(row[0], row[1]), row[2]);
  }
  EXPECT_EQ(sign_test_p(0, 0), 1.0);
}

TEST(Intervals, refuses_what_is_no_share_and_more_successes_than_trials) {
  EXPECT_THROW(normal_quantile(0), CheckFailure);
  EXPECT_THROW(student_t_quantile(1, 5), CheckFailure);
  EXPECT_THROW(incomplete_beta(0, 1, 0.5), CheckFailure);
  EXPECT_THROW(binomial_interval(4, 3, 0.05), CheckFailure);
  EXPECT_THROW(sign_test_p(-1, 3), CheckFailure);
}

}  // namespace
}  // namespace darkroom
