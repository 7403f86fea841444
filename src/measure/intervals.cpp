#include "darkroom/measure/intervals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

// log Gamma without lgamma's global sign, which threads would share.
double log_gamma(double value) {
  int sign = 0;
  return lgamma_r(value, &sign);
}

// The continued fraction of I_x(a, b), which converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMostTerms = 10'000;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1.0;
  double d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
  double fraction = d;
  for (int m = 1; m < kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1.0 / away_from_zero(1.0 + even * d);
    c = away_from_zero(1.0 + even / c);
    fraction *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1.0 / away_from_zero(1.0 + odd * d);
    c = away_from_zero(1.0 + odd / c);
    fraction *= d * c;
    if (std::abs(d * c - 1.0) < std::numeric_limits<double>::epsilon()) {
      break;
    }
  }
  return fraction;
}

// Where a function that grows over [low, high] reaches `wanted`.
template <typename Function>
double solve_growing(double low, double high, double wanted, const Function& function) {
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = 0.5 * (low + high);
    if (middle == low || middle == high) {
      break;
    }
    (function(middle) < wanted ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// The chance of at most t, from the side on which no digit is lost: near 0 from the middle, else from the tail.
double student_t_share_below(double t, double degrees) {
  const double square = t * t;
  if (square < degrees) {
    const double from_middle = 0.5 * incomplete_beta(0.5, 0.5 * degrees, square / (degrees + square));
    return t < 0 ? 0.5 - from_middle : 0.5 + from_middle;
  }
  const double tail = 0.5 * incomplete_beta(0.5 * degrees, 0.5, degrees / (degrees + square));
  return t < 0 ? tail : 1.0 - tail;
}

}  // namespace

double normal_share_below(double value) { return 0.5 * std::erfc(-value / std::numbers::sqrt2); }

double normal_quantile(double share) {
  DARKROOM_CHECK(share > 0 && share < 1, "a quantile's share must lie between 0 and 1:", share);
  if (share > 0.5) {
    return -normal_quantile(1.0 - share);
  }
  constexpr double kLowest = -40;  // Below it no double is left of the distribution function.
  return solve_growing(kLowest, 0, share, normal_share_below);
}

double incomplete_beta(double a, double b, double x) {
  DARKROOM_CHECK(a > 0 && b > 0 && x >= 0 && x <= 1, "the incomplete beta function is not defined at (a, b, x):", a, b, x);
  if (x == 0 || x == 1) {
    return x;
  }
  const double front = std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1.0 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_t_quantile(double share, double degrees) {
  DARKROOM_CHECK(share > 0 && share < 1 && degrees > 0, "Student's t has no such quantile (share, degrees):", share, degrees);
  if (share > 0.5) {
    return -student_t_quantile(1.0 - share, degrees);
  }
  double low = -1;
  while (student_t_share_below(low, degrees) > share && low > -1e100) {
    low *= 2;
  }
  return solve_growing(low, 0, share, [degrees](double t) { return student_t_share_below(t, degrees); });
}

Interval binomial_interval(int64_t num_successes, int64_t num_trials, double error_rate) {
  DARKROOM_CHECK(0 <= num_successes && num_successes <= num_trials, "more successes than trials:", num_successes, num_trials);
  const auto successes = static_cast<double>(num_successes);
  const auto failures = static_cast<double>(num_trials - num_successes);
  const auto beta_quantile = [](double share, double a, double b) {
    return solve_growing(0, 1, share, [a, b](double x) { return incomplete_beta(a, b, x); });
  };
  return {.low = num_successes == 0 ? 0.0 : beta_quantile(error_rate / 2, successes, failures + 1),
          .high = num_successes == num_trials ? 1.0 : beta_quantile(1 - error_rate / 2, successes + 1, failures)};
}

double sign_test_p(int64_t num_successes, int64_t num_trials) {
  DARKROOM_CHECK(0 <= num_successes && num_successes <= num_trials, "more successes than trials:", num_successes, num_trials);
  const int64_t more = std::max(num_successes, num_trials - num_successes);
  // The chance of `more` or beyond: I_1/2(more, rest + 1).
  const double tail = more == 0 ? 1.0 : incomplete_beta(static_cast<double>(more), static_cast<double>(num_trials - more) + 1, 0.5);
  return std::min(1.0, 2 * tail);
}

}  // namespace darkroom
