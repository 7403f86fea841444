#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "darkroom/measure/intervals.h"

namespace darkroom {

// Two models painted the same prompts from the same noise. What can be said of the difference between them beyond these prompts? The unit
// of all resampling is the prompt: a prompt's pictures belong together, and so do what A and what B made of it.

struct ResamplingOptions {
  int64_t num_resamples = 2000;
  double error_rate = 0.05;  ///< Intervals hold the truth with 1 - error_rate.
  uint64_t seed = 0;
  std::stop_token stop = {};  ///< Once it is requested, no further resample is made: what was asked for says nothing then.
};

/// A difference between the models where prompt i counts counts[i] times.
using ResampledDifference = std::function<double(std::span<const uint32_t> counts)>;
/// The difference where of the prompts with swapped[i] = 1 the pictures of A pass for B's, and the other way round.
using SwappedDifference = std::function<double(std::span<const uint8_t> swapped)>;

/// Interval of a difference by the bootstrap over prompts: the percentiles of resampled differences, with Hesterberg's correction for few
/// prompts ("What Teachers Should Know About the Bootstrap", 2015, section 3.4.3), which widens them by sqrt(n / (n - 1)) and from normal
/// to Student quantiles. One prompt says nothing of others: everything from -infinity to infinity. Resample r is drawn with (seed, kSelect,
/// epoch r, "compare/bootstrap"), the same one for every measure. REQUIRES: num_prompts >= 1, num_resamples >= 1.
Interval bootstrap_interval(size_t num_prompts, const ResampledDifference& difference, const ResamplingOptions& options);

/// The same interval, and the standard error of the difference: the standard deviation of the resampled differences, widened by
/// sqrt(n / (n - 1)), too. Of one prompt, and once a stop is requested, it is infinite.
struct BootstrapOutcome {
  Interval interval;
  double standard_error = 0;
};
BootstrapOutcome bootstrap(size_t num_prompts, const ResampledDifference& difference, const ResamplingOptions& options);

/// p-value of the two-sided randomisation test: where A and B paint alike, exchanging them within a prompt changes nothing, so the observed
/// difference is one of the many that exchanges at random make. (1 + number of those that are at least as far from 0) / (1 + number of
/// resamples), which holds its error rate for any number of prompts and any distribution, as long as prompts share nothing that favours a
/// model, as one noise for all may. Draws with (seed, kSelect, epoch r, "compare/swaps"). REQUIRES: as above.
double randomisation_p(size_t num_prompts, const SwappedDifference& difference, const ResamplingOptions& options);

/// Mean of differences[i] with weights counts[i], or with the sign turned where swapped[i]: for measures that are a number a prompt.
ResampledDifference resampled_mean(std::vector<double> differences);
SwappedDifference swapped_mean(std::vector<double> differences);

/// Holm's step-down correction (1979): p-values as they count where several measures may decide, in the order given. Rejecting those that
/// are at most the error rate errs once or more with at most that rate, whatever depends on what.
std::vector<double> holm_adjusted(std::span<const double> p_values);

}  // namespace darkroom
