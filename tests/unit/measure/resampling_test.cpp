#include "darkroom/measure/resampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "darkroom/measure/verdict.h"
#include "measure_golden.h"

namespace darkroom {
namespace {

constexpr int kExperiments = 200;

// What a measure may say of the prompts of an experiment.
struct Law {
  const char* name;
  double truth;
  double (*difference)(double normal);
};

constexpr Law kLaws[] = {
    {"normal", 0.3, [](double normal) { return 0.3 + normal; }},
    {"skewed", 0.0, [](double normal) { return std::exp(0.5 * normal) - std::exp(0.125); }},
    // Shares such as those of retrieval: 1, 0 or -1, for 24.2 %, 69.2 % and 6.7 % of prompts.
    {"shares", 0.175156, [](double normal) { return normal > 0.7    ? 1.0
                                                    : normal < -1.5 ? -1.0
                                                                    : 0.0; }},
};

std::vector<double> drawn(const Law& law, size_t num_prompts, int experiment, const char* name = "law") {
  const CounterRandom random(11, Purpose::kInit, static_cast<uint32_t>(experiment), name);
  std::vector<double> differences;
  for (size_t i = 0; i < num_prompts; ++i) {
    differences.push_back(law.difference(static_cast<double>(random.normal(i))));
  }
  return differences;
}

// `num_expected` of kExperiments with three standard deviations of what chance adds.
double most(double share) { return kExperiments * share + 3 * std::sqrt(kExperiments * share * (1 - share)); }

ResamplingOptions options_of(int experiment) {
  return {.num_resamples = 500, .error_rate = 0.05, .seed = static_cast<uint64_t>(experiment)};
}

TEST(BootstrapInterval, holds_the_truth_as_often_as_it_says) {
  for (const Law& law : kLaws) {
    for (const size_t num_prompts : {16, 50}) {
      SCOPED_TRACE(std::string(law.name) + ", " + std::to_string(num_prompts));
      int num_missed = 0;
      for (int i = 0; i < kExperiments; ++i) {
        num_missed +=
            bootstrap_interval(num_prompts, resampled_mean(drawn(law, num_prompts, i)), options_of(i)).contains(law.truth) ? 0 : 1;
      }
      EXPECT_LE(num_missed, most(0.05));
      EXPECT_GE(num_missed, 1);  // Intervals that hold everything would say nothing.
    }
  }
}

TEST(BootstrapInterval, of_equal_differences_is_that_number) {
  const Interval interval = bootstrap_interval(9, resampled_mean(std::vector<double>(9, 0.25)), {});
  EXPECT_EQ(interval.low, 0.25);
  EXPECT_EQ(interval.high, 0.25);
}

TEST(BootstrapInterval, of_one_prompt_says_nothing_of_others) {
  const Interval interval = bootstrap_interval(1, resampled_mean({5}), {});
  EXPECT_EQ(interval.low, -INFINITY);
  EXPECT_EQ(interval.high, INFINITY);
}

TEST(BootstrapInterval, is_the_same_for_a_seed_and_wider_for_a_smaller_error_rate) {
  const auto difference = resampled_mean(drawn(kLaws[0], 20, 0));
  const Interval interval = bootstrap_interval(20, difference, {.seed = 3});
  EXPECT_EQ(interval.low, bootstrap_interval(20, difference, {.seed = 3}).low);
  EXPECT_NE(interval.low, bootstrap_interval(20, difference, {.seed = 4}).low);
  const Interval wider = bootstrap_interval(20, difference, {.error_rate = 0.01, .seed = 3});
  EXPECT_LT(wider.low, interval.low);
  EXPECT_GT(wider.high, interval.high);
}

TEST(BootstrapInterval, draws_as_many_prompts_as_there_are) {
  const auto difference = [](std::span<const uint32_t> counts) {
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0U), 7U);
    return 0.0;
  };
  bootstrap_interval(7, difference, {.num_resamples = 20});
  EXPECT_THROW(bootstrap_interval(0, difference, {}), CheckFailure);
  EXPECT_THROW(bootstrap_interval(7, difference, {.num_resamples = 0}), CheckFailure);
}

TEST(Resampling, ends_with_the_resample_at_which_a_stop_is_requested) {
  std::stop_source source;
  const ResamplingOptions options{.num_resamples = 1'000, .stop = source.get_token()};
  int num_asked = 0;
  const auto difference = [&](const auto& /*prompts*/) {
    if (++num_asked == 3) {
      source.request_stop();
    }
    return 0.5;
  };
  EXPECT_EQ(bootstrap_interval(7, difference, options).low, -INFINITY);
  EXPECT_EQ(num_asked, 3);
  EXPECT_EQ(randomisation_p(7, difference, options), 1);
  EXPECT_EQ(num_asked, 4);  // What was observed, and no exchange.
}

TEST(RandomisationTest, rejects_equal_models_no_more_often_than_its_error_rate) {
  constexpr Law kEqual = {"equal", 0, [](double normal) { return std::copysign(normal * normal, normal); }};
  for (const size_t num_prompts : {7, 30}) {
    int num_rejected = 0;
    for (int i = 0; i < kExperiments; ++i) {
      num_rejected += randomisation_p(num_prompts, swapped_mean(drawn(kEqual, num_prompts, i)), options_of(i)) <= 0.05 ? 1 : 0;
    }
    EXPECT_LE(num_rejected, most(0.05));
    EXPECT_GE(num_rejected, 1);
  }
}

TEST(RandomisationTest, counts_every_exchange_as_as_far_where_nothing_differs) {
  EXPECT_EQ(randomisation_p(12, swapped_mean(std::vector<double>(12, 0.0)), {}), 1.0);
  EXPECT_THROW(randomisation_p(0, swapped_mean({}), {}), CheckFailure);
}

TEST(RandomisationTest, cannot_show_much_with_few_prompts) {
  // Of 4 prompts that agree, 2 of 16 exchanges are as far: 12.5 %.
  EXPECT_NEAR(randomisation_p(4, swapped_mean({1, 1, 1, 1}), {}), 0.125, 3 * std::sqrt(0.125 * 0.875 / 2000));
  EXPECT_LE(randomisation_p(70, swapped_mean(std::vector<double>(70, 1.0)), {}), 1.0 / 2001 + 1e-12);
}

TEST(Holm, adjusts_as_defined) {
  const auto golden = measure_golden("statistics.json");
  ASSERT_EQ(golden["holm"].size(), 4U);
  for (const auto& one : golden["holm"]) {
    SCOPED_TRACE(one.dump());
    const std::vector<double> p_values = one[0];
    const std::vector<double> want = one[1];
    const std::vector<double> got = holm_adjusted(p_values);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_DOUBLE_EQ(got[i], want[i]);
    }
  }
  EXPECT_TRUE(holm_adjusted({}).empty());
}

// A comparison of two models by four measures of which two go together.
ComparisonVerdict compare_by_four(int experiment, double effect, size_t num_prompts) {
  constexpr Law kNormal = {"normal", 0, [](double normal) { return normal; }};
  std::vector<MeasureOutcome> measures;
  for (const char* name : {"one", "two", "three", "four"}) {
    std::vector<double> a = drawn(kNormal, num_prompts, experiment, name);
    const std::vector<double> shared = drawn(kNormal, num_prompts, experiment, "shared");
    for (size_t i = 0; i < num_prompts; ++i) {
      a[i] += effect + (std::string_view(name) < "o" ? 0.0 : shared[i]);
    }
    measures.push_back(compare_scores({.name = name}, a, std::vector<double>(num_prompts, 0.0), options_of(experiment)));
  }
  return decide(measures, 0.05);
}

TEST(StandardError, of_a_mean_is_that_of_the_paired_differences) {
  // Differences 1, 2, 3, 6: their mean is 3, their variance 14/3.
  const MeasureOutcome outcome = compare_scores({.name = "one"}, {11, 102, 1003, 10006}, {10, 100, 1000, 10000}, {});
  EXPECT_DOUBLE_EQ(outcome.difference, 3);
  EXPECT_DOUBLE_EQ(*outcome.standard_error, std::sqrt(14.0 / 3 / 4));
  EXPECT_FALSE(compare_scores({.name = "one"}, {2}, {1}, {}).standard_error.has_value());
}

TEST(StandardError, of_the_bootstrap_of_a_mean_is_that_of_the_mean) {
  const std::vector<double> values = drawn(kLaws[0], 40, 0);
  const double want = *compare_scores({.name = "one"}, values, std::vector<double>(40, 0.0), {}).standard_error;
  const BootstrapOutcome found = bootstrap(40, resampled_mean(values), {.num_resamples = 2000, .seed = 3});
  EXPECT_NEAR(found.standard_error, want, 4 * want / std::sqrt(2.0 * 2000));  // Four errors of a deviation over 2,000 draws.
  EXPECT_EQ(found.interval.low, bootstrap_interval(40, resampled_mean(values), {.num_resamples = 2000, .seed = 3}).low);
  EXPECT_EQ(bootstrap(1, resampled_mean({5}), {}).standard_error, INFINITY);
}

TEST(Verdict, prefers_neither_of_equal_models_with_the_stated_error_rate) {
  int num_wrong = 0;
  for (int i = 0; i < kExperiments; ++i) {
    const ComparisonVerdict verdict = compare_by_four(i, 0.0, 12);
    num_wrong += verdict.preferred != Preference::kNone || verdict.is_contradictory ? 1 : 0;
  }
  EXPECT_LE(num_wrong, most(0.05));
}

TEST(Verdict, prefers_the_better_of_models_far_apart) {
  int num_right = 0;
  for (int i = 0; i < kExperiments; ++i) {
    num_right += compare_by_four(i, 2.0, 12).preferred == Preference::kA ? 1 : 0;
  }
  EXPECT_GE(num_right, 0.95 * kExperiments);
}

MeasureOutcome outcome_of(const std::string& name, double difference, double p) {
  MeasureOutcome outcome{.name = name};
  outcome.difference = difference;
  outcome.interval = Interval{difference - 0.5, difference + 0.5};
  outcome.p = p;
  return outcome;
}

TEST(Verdict, names_the_measure_that_decided) {
  std::vector<MeasureOutcome> measures = {outcome_of("weak", 1, 0.01), outcome_of("strong", 1, 0.001), outcome_of("silent", 0.1, 0.4)};
  const ComparisonVerdict verdict = decide(measures, 0.05);
  EXPECT_EQ(verdict.preferred, Preference::kA);
  EXPECT_EQ(verdict.decided_by, "strong");
  EXPECT_EQ(measures[0].preference, Preference::kA);
  EXPECT_DOUBLE_EQ(*measures[0].p_adjusted, 0.02);
  EXPECT_EQ(measures[2].preference, Preference::kNone);
}

TEST(Verdict, knows_where_less_is_better) {
  MeasureOutcome distance = outcome_of("distance", 1, 0.001);
  distance.higher_is_better = false;
  std::vector<MeasureOutcome> measures = {distance};
  EXPECT_EQ(decide(measures, 0.05).preferred, Preference::kB);
}

TEST(Verdict, prefers_nothing_where_measures_contradict_each_other) {
  std::vector<MeasureOutcome> measures = {outcome_of("one", 1, 0.001), outcome_of("other", -1, 0.001)};
  const ComparisonVerdict verdict = decide(measures, 0.05);
  EXPECT_TRUE(verdict.is_contradictory);
  EXPECT_EQ(verdict.preferred, Preference::kNone);
  EXPECT_EQ(verdict.decided_by, "");
}

TEST(Verdict, needs_an_interval_without_zero_as_well) {
  std::vector<MeasureOutcome> measures = {outcome_of("one", 0.4, 0.001)};
  EXPECT_EQ(decide(measures, 0.05).preferred, Preference::kNone);
}

TEST(Verdict, leaves_measures_that_were_not_resampled_out_of_the_correction) {
  MeasureOutcome alone{.name = "fid"};
  alone.difference = 9;
  std::vector<MeasureOutcome> measures = {alone, outcome_of("one", 1, 0.04)};
  EXPECT_EQ(decide(measures, 0.05).decided_by, "one");
  EXPECT_FALSE(measures[0].p_adjusted.has_value());
  std::vector<MeasureOutcome> none;
  EXPECT_EQ(decide(none, 0.05).preferred, Preference::kNone);
}

}  // namespace
}  // namespace darkroom
