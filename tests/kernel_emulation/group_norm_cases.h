#pragma once

#include <algorithm>

#include "kernel_cases.h"

namespace darkroom::kernel_tests {

/// Channels, pixels, samples and groups of one call, and where in memory its arrays lie.
struct NormCase {
  GroupNormShape shape;
  int64_t offset;  // Of x and its like, in elements, where single elements are accessed.

  std::string name() const {
    return std::to_string(shape.num_samples) + " samples x " + std::to_string(shape.num_pixels) + " pixels x " +
           std::to_string(shape.num_channels) + " channels in " + std::to_string(shape.num_groups) + " groups" +
           (shape.with_silu ? ", silu" : "");
  }
  int64_t size() const { return shape.num_samples * shape.num_pixels * shape.num_channels; }
  int64_t group_channels() const { return shape.num_channels / shape.num_groups; }
  int64_t group_size() const { return group_channels() * shape.num_pixels; }
  int64_t num_statistics() const { return shape.num_samples * shape.num_groups; }
  int64_t num_partials() const { return 2 * shape.num_samples * group_norm_chunks(shape) * shape.num_channels; }
  /// Channel, and place in [N, G], of element i of x.
  int64_t channel_of(int64_t i) const { return i % shape.num_channels; }
  int64_t group_of(int64_t i) const {
    return i / (shape.num_pixels * shape.num_channels) * shape.num_groups + channel_of(i) / group_channels();
  }
};

template <typename Scalar>
NormCase random_norm_case(Draws& draws, bool with_vectors, bool with_silu) {
  constexpr int64_t kWide = 16 / sizeof(Scalar);
  const double kind = draws.uniform();
  int64_t samples = draws.between(1, 4), pixels = draws.between(1, 70), channels = draws.between(1, 90);
  if (kind > 0.99) {  // More pixels than so many chunks take at once.
    samples = 1;
    pixels = draws.between(513, 600);
    channels = (with_vectors ? kWide : 1) * draws.between(129, 140);
  } else if (kind > 0.9) {  // More columns than a block has threads.
    samples = draws.between(1, 2);
    pixels = draws.between(1, 5);
    channels = with_vectors ? draws.between(1200, 2600) : draws.between(250, 800);
  } else if (kind > 0.75) {  // Many pixels of few channels.
    samples = draws.between(1, 2);
    pixels = draws.between(200, 2500);
    channels = draws.between(1, 9);
  }
  if (with_vectors) {
    channels = (channels + kWide - 1) / kWide * kWide;
  } else if (channels % kWide == 0) {
    channels += draws.between(1, kWide - 1);
  }
  int64_t groups = draws.between(1, std::min<int64_t>(channels, 40));
  while (channels % groups != 0) {
    --groups;
  }
  const float eps = draws.chance(0.5) ? 1e-5F : 1e-6F;
  return {{kElement<Scalar>, with_silu, samples, pixels, channels, groups, eps}, with_vectors ? 0 : draws.between(0, kWide - 1)};
}

/// Two samples of 3 pixels of 3 groups, of 8 channels each or of 5: for numbers that are not finite.
template <typename Scalar>
NormCase small_norm_case(bool with_vectors, bool with_silu) {
  return {{kElement<Scalar>, with_silu, 2, 3, with_vectors ? 24 : 15, 3, 1e-5F}, 0};
}

inline double sigmoid_of(double z) { return 1.0 / (1.0 + std::exp(-z)); }

/// Statistics in double, of [N, G].
struct NormStatistics {
  std::vector<double> mean, variance;
};

template <typename Scalar>
NormStatistics statistics_of(const NormCase& one, const Array<Scalar>& x) {
  NormStatistics result{std::vector<double>(static_cast<size_t>(one.num_statistics())), {}};
  result.variance = result.mean;
  const auto terms = static_cast<double>(one.group_size());
  for (int64_t i = 0; i < x.size(); ++i) {
    result.mean[static_cast<size_t>(one.group_of(i))] += x[i] / terms;
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto group = static_cast<size_t>(one.group_of(i));
    result.variance[group] += (x[i] - result.mean[group]) * (x[i] - result.mean[group]) / terms;
  }
  return result;
}

}  // namespace darkroom::kernel_tests
