#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace darkroom {

/// Bound on |got - want| after `num_terms` accumulations of values up to `magnitude`.
template <typename Scalar>
constexpr double accumulation_tolerance(int64_t num_terms, double magnitude) {
  constexpr double kSafety = 4.0;  // Headroom for reordering; not a knob for a failing test.
  return kSafety * static_cast<double>(num_terms) * static_cast<double>(std::numeric_limits<Scalar>::epsilon()) * magnitude;
}

/// Success where error <= bound. The test's largest ratio of the two becomes the property "error_to_bound" of its report, from which
/// tools/check/every_processor.py knows how much room each bound leaves.
inline testing::AssertionResult error_within(double error, double bound) {
  static const testing::TestInfo* test = nullptr;
  static double worst = 0;
  const testing::TestInfo* current = testing::UnitTest::GetInstance()->current_test_info();
  if (current != test) {
    test = current;
    worst = 0;
  }
  const double ratio = error == 0 ? 0 : error / bound;
  if (!(ratio <= worst)) {  // Also where it is not a number.
    worst = ratio;
    testing::Test::RecordProperty("error_to_bound", std::to_string(worst));
  }
  if (error <= bound) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "the error is " << error << ", its bound " << bound;
}

/// Success where |got - want| <= bound.
inline testing::AssertionResult is_near(double got, double want, double bound) {
  return error_within(std::abs(got - want), bound) << " (got " << got << ", want " << want << ")";
}

}  // namespace darkroom
