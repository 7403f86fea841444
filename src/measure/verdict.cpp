#include "darkroom/measure/verdict.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of the mean of values that are a sample.
std::optional<double> standard_error_of(const std::vector<double>& values, double mean) {
  if (values.size() < 2) {
    return std::nullopt;
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(squares / (n - 1) / n);
}

Preference preference_of(const MeasureOutcome& measure, double error_rate) {
  const bool is_shown = measure.p_adjusted && measure.interval && *measure.p_adjusted <= error_rate && !measure.interval->contains(0);
  if (!is_shown) {
    return Preference::kNone;
  }
  return (measure.difference > 0) == measure.higher_is_better ? Preference::kA : Preference::kB;
}

}  // namespace

std::string_view preference_name(Preference preference) {
  return preference == Preference::kA ? "A" : preference == Preference::kB ? "B" : "none";
}

MeasureOutcome compare_scores(MeasureOutcome outcome, const std::vector<double>& a, const std::vector<double>& b,
                              const ResamplingOptions& options) {
  DARKROOM_CHECK(!a.empty() && a.size() == b.size(), "each prompt needs a score of A and one of B (A, B):", a.size(), b.size());
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) {
    differences.push_back(a[i] - b[i]);
  }
  outcome.a = mean_of(a);
  outcome.b = mean_of(b);
  outcome.difference = mean_of(differences);
  outcome.num_prompts = a.size();
  outcome.standard_error = standard_error_of(differences, outcome.difference);
  outcome.interval = bootstrap_interval(a.size(), resampled_mean(differences), options);
  outcome.p = randomisation_p(a.size(), swapped_mean(differences), options);
  return outcome;
}

ComparisonVerdict decide(std::vector<MeasureOutcome>& measures, double error_rate) {
  std::vector<double> p_values;
  for (const MeasureOutcome& measure : measures) {
    if (measure.p) {
      p_values.push_back(*measure.p);
    }
  }
  const std::vector<double> adjusted = holm_adjusted(p_values);
  ComparisonVerdict verdict;
  bool prefers_a = false, prefers_b = false;
  double smallest = 2;
  for (size_t i = 0, k = 0; i < measures.size(); ++i) {
    MeasureOutcome& measure = measures[i];
    measure.p_adjusted = measure.p ? std::optional(adjusted[k++]) : std::nullopt;
    measure.preference = preference_of(measure, error_rate);
    prefers_a |= measure.preference == Preference::kA;
    prefers_b |= measure.preference == Preference::kB;
    if (measure.preference != Preference::kNone && *measure.p_adjusted < smallest) {
      smallest = *measure.p_adjusted;
      verdict.decided_by = measure.name;
      verdict.preferred = measure.preference;
    }
  }
  verdict.is_contradictory = prefers_a && prefers_b;
  if (verdict.is_contradictory) {
    verdict.preferred = Preference::kNone;
    verdict.decided_by.clear();
  }
  return verdict;
}

}  // namespace darkroom
