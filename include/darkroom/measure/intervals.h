#pragma once

#include <cstdint>

namespace darkroom {

/// Both ends belong to it.
struct Interval {
  double low = 0;
  double high = 0;
  bool contains(double value) const { return low <= value && value <= high; }
};

/// The distribution function of the standard normal, and its inverse. REQUIRES of the inverse: 0 < share < 1. Thread safety of all here:
/// pure.
double normal_share_below(double value);
double normal_quantile(double share);

/// The regularised incomplete beta function I_x(a, b) by its continued fraction (DLMF 8.17.22, modified Lentz). REQUIRES: a, b > 0, x in
/// [0, 1].
double incomplete_beta(double a, double b, double x);

/// Quantile of Student's t distribution. REQUIRES: 0 < share < 1, degrees > 0.
double student_t_quantile(double share, double degrees);

/// The exact interval of Clopper and Pearson (1934) for the chance of success after `num_successes` of `num_trials`: it holds the chance
/// with at least 1 - error_rate. Without trials: [0, 1]. REQUIRES: 0 <= num_successes <= num_trials.
Interval binomial_interval(int64_t num_successes, int64_t num_trials, double error_rate);

/// The two-sided p-value of the exact sign test: how likely a fair coin is to fall at least as unevenly. 1 without trials.
double sign_test_p(int64_t num_successes, int64_t num_trials);

}  // namespace darkroom
