#include "darkroom/measure/resampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

// The value below which `share` of sorted values lie, between two of them in proportion.
double sorted_quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Standard deviation of values that are all there is.
double deviation_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return std::sqrt(squares / n);
}

void check_resampling(size_t num_prompts, const ResamplingOptions& options) {
  DARKROOM_CHECK(num_prompts >= 1 && options.num_resamples >= 1, "nothing to resample (prompts, resamples):", num_prompts,
                 options.num_resamples);
}

}  // namespace

Interval bootstrap_interval(size_t num_prompts, const ResampledDifference& difference, const ResamplingOptions& options) {
  return bootstrap(num_prompts, difference, options).interval;
}

BootstrapOutcome bootstrap(size_t num_prompts, const ResampledDifference& difference, const ResamplingOptions& options) {
  check_resampling(num_prompts, options);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr BootstrapOutcome kEverything{.interval = {-kInfinity, kInfinity}, .standard_error = kInfinity};
  if (num_prompts == 1) {
    return kEverything;
  }
  std::vector<double> differences;
  std::vector<uint32_t> counts(num_prompts);
  for (int64_t r = 0; r < options.num_resamples; ++r) {
    if (options.stop.stop_requested()) {
      return kEverything;
    }
    const CounterRandom random(options.seed, Purpose::kSelect, static_cast<uint32_t>(r), "compare/bootstrap");
    std::ranges::fill(counts, 0U);
    for (size_t i = 0; i < num_prompts; ++i) {
      ++counts[random.below(i, static_cast<uint32_t>(num_prompts))];
    }
    differences.push_back(difference(counts));
  }
  std::ranges::sort(differences);
  const auto n = static_cast<double>(num_prompts);
  const double widened = std::sqrt(n / (n - 1));
  const double tail = normal_share_below(widened * student_t_quantile(options.error_rate / 2, n - 1));
  return {.interval = {sorted_quantile(differences, tail), sorted_quantile(differences, 1 - tail)},
          .standard_error = widened * deviation_of(differences)};
}

double randomisation_p(size_t num_prompts, const SwappedDifference& difference, const ResamplingOptions& options) {
  check_resampling(num_prompts, options);
  std::vector<uint8_t> swapped(num_prompts, 0);
  const double observed = std::abs(difference(swapped));
  // What differs by rounding only is as far.
  const double as_far = observed * (1 - 1e-9);
  int64_t num_as_far = 0;
  for (int64_t r = 0; r < options.num_resamples; ++r) {
    if (options.stop.stop_requested()) {
      return 1;
    }
    const CounterRandom random(options.seed, Purpose::kSelect, static_cast<uint32_t>(r), "compare/swaps");
    for (size_t i = 0; i < num_prompts; ++i) {
      swapped[i] = static_cast<uint8_t>(random.bits(i / 32) >> (i % 32) & 1U);
    }
    num_as_far += std::abs(difference(swapped)) >= as_far ? 1 : 0;
  }
  return static_cast<double>(1 + num_as_far) / static_cast<double>(1 + options.num_resamples);
}

ResampledDifference resampled_mean(std::vector<double> differences) {
  return [differences = std::move(differences)](std::span<const uint32_t> counts) {
    double sum = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      sum += counts[i] * differences[i];
    }
    return sum / static_cast<double>(counts.size());
  };
}

SwappedDifference swapped_mean(std::vector<double> differences) {
  return [differences = std::move(differences)](std::span<const uint8_t> swapped) {
    double sum = 0;
    for (size_t i = 0; i < swapped.size(); ++i) {
      sum += swapped[i] != 0 ? -differences[i] : differences[i];
    }
    return sum / static_cast<double>(swapped.size());
  };
}

std::vector<double> holm_adjusted(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(order.size() - rank) * p_values[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

}  // namespace darkroom
