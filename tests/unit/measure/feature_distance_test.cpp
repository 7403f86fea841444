#include "darkroom/measure/feature_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "measure_golden.h"

namespace darkroom {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

FeatureRows drawn(size_t num_rows, size_t width, const std::string& name, double shift = 0) {
  const CounterRandom random(1, Purpose::kInit, 0, name);
  FeatureRows features{.width = width};
  for (size_t i = 0; i < num_rows * width; ++i) {
    features.values.push_back(static_cast<double>(random.normal(i)) + shift);
  }
  return features;
}

// Rounding of sums of squares and of singular values: a few units each of the largest term.
double tolerance(const FeatureRows& a, const FeatureRows& b) {
  double squares = 0;
  for (const FeatureRows* features : {&a, &b}) {
    double sum = 0;
    for (const double value : features->values) {
      sum += value * value;
    }
    squares += sum / static_cast<double>(features->num_rows() - 1);
  }
  return 8 * kEpsilon * squares * static_cast<double>(a.num_rows() + b.num_rows() + a.width);
}

TEST(SingularValues, add_up_for_every_shape) {
  EXPECT_NEAR(sum_of_singular_values({3, 0, 0, 4}, 2, 2), 7, 7 * kEpsilon);
  EXPECT_DOUBLE_EQ(sum_of_singular_values({-5}, 1, 1), 5);
  EXPECT_NEAR(sum_of_singular_values({3, 4}, 1, 2), 5, 10 * kEpsilon);
  EXPECT_NEAR(sum_of_singular_values({3, 4}, 2, 1), 5, 10 * kEpsilon);
  EXPECT_EQ(sum_of_singular_values(std::vector<double>(6, 0.0), 2, 3), 0);
  // Of rank 1: the length of the one row times that of the one column.
  EXPECT_NEAR(sum_of_singular_values({2, 4, 6, 1, 2, 3}, 2, 3), std::sqrt(5.0 * 14), 40 * kEpsilon);
}

TEST(SingularValues, of_a_prime_number_of_rows_are_those_of_the_turned_matrix) {
  const FeatureRows matrix = drawn(13, 7, "matrix");
  std::vector<double> turned(matrix.values.size());
  for (size_t i = 0; i < 13; ++i) {
    for (size_t j = 0; j < 7; ++j) {
      turned[j * 13 + i] = matrix.values[i * 7 + j];
    }
  }
  const double sum = sum_of_singular_values(matrix.values, 13, 7);
  EXPECT_NEAR(sum, sum_of_singular_values(turned, 7, 13), 100 * kEpsilon * sum);
}

TEST(FrechetDistance, equals_clean_fid_and_the_exact_value) {
  const auto golden = measure_golden("features.json");
  ASSERT_EQ(golden["cases"].size(), 7U);
  int num_published = 0;
  for (const auto& one : golden["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const FeatureRows a{.width = one["width"], .values = one["a"]};
    const FeatureRows b{.width = one["width"], .values = one["b"]};
    const double distance = frechet_distance(a, b);
    EXPECT_NEAR(distance, one["exact"].get<double>(), tolerance(a, b));
    if (one.contains("frechet")) {
      const double published = one["frechet"];
      EXPECT_NEAR(distance, published, 1e-6 * std::abs(published));
      ++num_published;
    }
  }
  EXPECT_GE(num_published, 4);
}

TEST(KernelDistance, equals_clean_fid) {
  const auto golden = measure_golden("features.json");
  int num_compared = 0;
  for (const auto& one : golden["cases"]) {
    if (one.contains("kernel")) {
      SCOPED_TRACE(one["name"].get<std::string>());
      const double want = one["kernel"];
      const FeatureRows a{.width = one["width"], .values = one["a"]};
      const FeatureRows b{.width = one["width"], .values = one["b"]};
      EXPECT_NEAR(kernel_distance(a, b), want, 1e-6 * std::abs(want));
      // Subsets of everything are everything.
      EXPECT_NEAR(kernel_distance_of_subsets(a, b, {.num_subsets = 2}), want, 1e-6 * std::abs(want));
      ++num_compared;
    }
  }
  EXPECT_GE(num_compared, 3);
}

TEST(KernelDistance, of_subsets_comes_near_that_of_all_and_repeats_itself) {
  const FeatureRows a = drawn(40, 3, "a");
  const FeatureRows b = drawn(50, 3, "b", 1.0);
  const SubsetOptions options{.num_subsets = 200, .subset_size = 20, .seed = 5};
  const double whole = kernel_distance(a, b);
  const double estimate = kernel_distance_of_subsets(a, b, options);
  EXPECT_NEAR(estimate, whole, 0.1 * whole);
  EXPECT_EQ(estimate, kernel_distance_of_subsets(a, b, options));
  EXPECT_NE(estimate, kernel_distance_of_subsets(a, b, {.num_subsets = 200, .subset_size = 20, .seed = 6}));
}

TEST(FeatureDistances, refuse_sets_that_do_not_fit) {
  EXPECT_THROW(frechet_distance(drawn(3, 2, "a"), drawn(3, 3, "b")), CheckFailure);
  EXPECT_THROW(frechet_distance(drawn(1, 2, "a"), drawn(3, 2, "b")), CheckFailure);
  EXPECT_THROW(kernel_distance(drawn(3, 2, "a"), drawn(1, 2, "b")), CheckFailure);
  EXPECT_THROW(KernelComparison(drawn(4, 2, "a"), drawn(3, 2, "b"), drawn(3, 2, "r"), 1), CheckFailure);
  EXPECT_THROW(FrechetComparison(drawn(3, 2, "a"), drawn(3, 2, "b"), drawn(3, 2, "r"), 2), CheckFailure);
}

// Both comparisons by what they say of whole sets.
template <typename Comparison, typename Distance>
void expect_differences_of_distances(const Distance& distance) {
  constexpr size_t kPrompts = 5, kPerPrompt = 2, kWidth = 4;
  const FeatureRows a = drawn(kPrompts * kPerPrompt, kWidth, "a");
  const FeatureRows b = drawn(kPrompts * kPerPrompt, kWidth, "b", 0.5);
  const FeatureRows references = drawn(11, kWidth, "references", 0.2);
  const Comparison comparison(a, b, references, kPerPrompt);
  const double want = distance(a, references) - distance(b, references);
  const double bound = tolerance(a, references) + tolerance(b, references);
  EXPECT_NEAR(comparison.resampled(std::vector<uint32_t>(kPrompts, 1)), want, bound);
  EXPECT_NEAR(comparison.swapped(std::vector<uint8_t>(kPrompts, 0)), want, bound);
  EXPECT_NEAR(comparison.swapped(std::vector<uint8_t>(kPrompts, 1)), -want, bound);
  FeatureRows swapped_a = a, swapped_b = b;  // Prompts 1 and 4.
  for (const size_t prompt : {1, 4}) {
    const auto first = static_cast<std::ptrdiff_t>(prompt * kPerPrompt * kWidth);
    std::swap_ranges(swapped_a.values.begin() + first, swapped_a.values.begin() + first + kPerPrompt * kWidth,
                     swapped_b.values.begin() + first);
  }
  EXPECT_NEAR(comparison.swapped(std::vector<uint8_t>{0, 1, 0, 0, 1}), distance(swapped_a, references) - distance(swapped_b, references),
              bound);
}

TEST(KernelComparison, is_the_difference_of_two_distances) {
  expect_differences_of_distances<KernelComparison>([](const FeatureRows& x, const FeatureRows& y) { return kernel_distance(x, y); });
}
TEST(FrechetComparison, is_the_difference_of_two_distances) {
  expect_differences_of_distances<FrechetComparison>([](const FeatureRows& x, const FeatureRows& y) { return frechet_distance(x, y); });
}

// More references than features, so that every stage is gone through.
TEST(FeatureDistances, that_are_stopped_are_none_and_whoever_asks_on_gets_no_damage) {
  const FeatureRows a = drawn(6, 4, "a"), b = drawn(6, 4, "b"), references = drawn(11, 4, "references");
  std::stop_source source;
  EXPECT_TRUE(std::isfinite(frechet_distance(a, references, source.get_token())));
  source.request_stop();
  const std::stop_token stop = source.get_token();
  EXPECT_TRUE(std::isnan(frechet_distance(a, references, stop)));
  EXPECT_TRUE(std::isnan(kernel_distance(a, references, stop)));
  EXPECT_LT(sum_of_singular_values({3, 0, 0, 4}, 2, 2, stop), 7);
  const std::vector<uint8_t> swapped(3, 1);
  EXPECT_EQ(KernelComparison(a, b, references, 2, stop).swapped(swapped), 0);  // No sum was begun.
  EXPECT_TRUE(std::isfinite(FrechetComparison(a, b, references, 2, stop).swapped(swapped)));
}

TEST(FrechetComparison, counts_a_prompt_as_often_as_it_was_drawn) {
  const FeatureRows a = drawn(3, 2, "a"), b = drawn(3, 2, "b"), references = drawn(6, 2, "references");
  const auto drawn_twice = [](const FeatureRows& features) {  // Prompts 0, 0 and 2.
    FeatureRows rows{.width = 2};
    for (const size_t i : {0, 0, 2}) {
      rows.values.insert(rows.values.end(), features.row(i).begin(), features.row(i).end());
    }
    return rows;
  };
  const double want = frechet_distance(drawn_twice(a), references) - frechet_distance(drawn_twice(b), references);
  EXPECT_NEAR(FrechetComparison(a, b, references, 1).resampled(std::vector<uint32_t>{2, 0, 1}), want, 2 * tolerance(a, references));
}

// Copies of one picture are no pair of different pictures: they would pass for a set without variety.
TEST(KernelComparison, compares_no_picture_with_its_own_copy) {
  const FeatureRows a = drawn(3, 2, "a"), b = drawn(3, 2, "b"), references = drawn(6, 2, "references");
  const auto kernel = [](std::span<const double> x, std::span<const double> y) { return std::pow((x[0] * y[0] + x[1] * y[1]) / 2 + 1, 3); };
  const auto distance = [&](const FeatureRows& features) {  // Of prompts 0, 0 and 2; what only the references say cancels.
    double to_references = 0;
    for (size_t r = 0; r < 6; ++r) {
      to_references += 2 * kernel(features.row(0), references.row(r)) + kernel(features.row(2), references.row(r));
    }
    return kernel(features.row(0), features.row(2)) - 2 * to_references / (3 * 6);
  };
  const double want = distance(a) - distance(b);
  EXPECT_NEAR(KernelComparison(a, b, references, 1).resampled(std::vector<uint32_t>{2, 0, 1}), want, 1e-12 * (1 + std::abs(want)));
  EXPECT_TRUE(std::isfinite(KernelComparison(a, b, references, 1).resampled(std::vector<uint32_t>{0, 3, 0})));
}

}  // namespace
}  // namespace darkroom
