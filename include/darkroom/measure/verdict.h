#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/measure/resampling.h"

namespace darkroom {

enum class Preference { kNone, kA, kB };

/// "A", "B", "none".
std::string_view preference_name(Preference preference);

/// What one measure says of two models.
struct MeasureOutcome {
  std::string name;       ///< "psnr", "retrieval_top1", ...
  std::string unit = {};  ///< "dB"; empty for a pure number.
  bool higher_is_better = true;
  double a = 0;
  double b = 0;
  double difference = 0;                      ///< a - b.
  std::optional<Interval> interval = {};      ///< Of the difference; empty: it was not resampled, so that it decides nothing.
  std::optional<double> standard_error = {};  ///< Of the difference, which is paired; empty: one prompt, or not resampled.
  std::optional<double> p = {};               ///< Of the randomisation test.
  std::optional<double> p_adjusted = {};      ///< After Holm's correction over the measures that decide.
  size_t num_prompts = 0;                     ///< That it is measured on.
  Preference preference = Preference::kNone;  ///< Set by decide().
  std::string note = {};
};

/// The outcome of a measure that is a number a prompt. REQUIRES: as many of a as of b, at least 1, all finite.
MeasureOutcome compare_scores(MeasureOutcome outcome, const std::vector<double>& a, const std::vector<double>& b,
                              const ResamplingOptions& options);

struct ComparisonVerdict {
  Preference preferred = Preference::kNone;
  std::string decided_by = {};    ///< The preferring measure with the smallest adjusted p-value; the first of equal ones.
  bool is_contradictory = false;  ///< Some measures prefer A and others B: then nothing is preferred.
};

/// Corrects the p-values of all measures that have one, and lets each prefer a model when its corrected p-value is at most the error rate
/// and its interval leaves 0 out. Where the models paint alike, any verdict but "none" comes with at most the error rate.
ComparisonVerdict decide(std::vector<MeasureOutcome>& measures, double error_rate);

}  // namespace darkroom
