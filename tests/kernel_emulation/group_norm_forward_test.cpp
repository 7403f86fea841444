#include "group_norm_cases.h"

// group_norm_forward.cu against the definition in double: mean and variance over the pixels and channels of a group,
// z = (x - mean) / sqrt(variance + eps) * weight + bias, y = z or z * sigmoid(z).
//
// Bounds, u = 2^-24 the rounding of float32, r that of the result's type, P pixels, D the differences d of a channel's pixels from its
// first. A sum of n rounded terms is off by n u times the sum of their sizes, in whatever order.
//   Channel mean: P u A, A the mean of |d| over the channel. Group mean: the mean of these over the channels, and its own u |mean|.
//   Variance: squares of d are off by 3u each and their sum by P u, so (P + 2) u Q for Q = sum d^2; the square of the sum, over P, by
//   2 |sum d| u sum|d| <= 2 P u Q; both over P, averaged over the channels. The spread of the channel means m_c adds 2 |m_c - mean| P u
//   A_c, averaged. With that sum v the root is off by 1 / sqrt(1 - v / (variance + eps)) - 1 of itself at most, and by u for its rounding.
//   z: |weight| rstd (error of the mean + |x - mean| (error of rstd + its u + u of scale, difference and product)) + u |z|.
//   silu: its slope is at most 1.1; expf is off by 2 ulp (4u), sum and quotient by 2u, the product by u: 7u |y|. Last r |y| (rounding_of).

namespace darkroom::kernel_tests {
namespace {

constexpr double kSteepestSilu = 1.1;

template <typename Scalar>
struct ForwardRun {
  Array<Scalar> y;
  Array<float> mean, rstd;
};

template <typename Scalar>
ForwardRun<Scalar> run_forward(const NormCase& one, const Array<Scalar>& x, const Array<Scalar>& weight, const Array<Scalar>& bias,
                               uint64_t order) {
  ForwardRun<Scalar> run{Array<Scalar>(one.size(), one.offset), Array<float>(one.num_statistics()), Array<float>(one.num_statistics())};
  Array<float> partials(one.num_partials()), sums(2 * one.shape.num_samples * one.shape.num_channels);
  run_in_order(order, [&] {
    return launch_group_norm(
        one.shape, {x.data(), weight.data(), bias.data(), run.y.data(), run.mean.data(), run.rstd.data(), partials.data(), sums.data()},
        nullptr);
  });
  return run;
}

// Errors of the statistics of [N, G]: of the mean absolutely, of the root relatively.
struct StatisticsError {
  std::vector<double> mean, rstd;
};

template <typename Scalar>
StatisticsError statistics_error(const NormCase& one, const Array<Scalar>& x, const NormStatistics& statistics) {
  const GroupNormShape& shape = one.shape;
  StatisticsError error{std::vector<double>(statistics.mean.size()), std::vector<double>(statistics.mean.size())};
  std::vector<double> of_variance(statistics.mean.size());
  const auto pixels = static_cast<double>(shape.num_pixels), channels = static_cast<double>(one.group_channels());
  for (int64_t sample = 0; sample < shape.num_samples; ++sample) {
    for (int64_t channel = 0; channel < shape.num_channels; ++channel) {
      const int64_t start = sample * shape.num_pixels * shape.num_channels + channel;
      double sum = 0.0, sizes = 0.0, squares = 0.0;
      for (int64_t pixel = 0; pixel < shape.num_pixels; ++pixel) {
        const double difference = x[start + pixel * shape.num_channels] - x[start];
        sum += difference;
        sizes += std::abs(difference);
        squares += difference * difference;
      }
      const auto group = static_cast<size_t>(one.group_of(start));
      const double mean_error = kUnit * sizes, channel_mean = x[start] + sum / pixels;
      error.mean[group] += mean_error / channels;
      of_variance[group] +=
          ((3 * pixels + 2) * kUnit * squares / pixels + 2 * std::abs(channel_mean - statistics.mean[group]) * mean_error) / channels;
    }
  }
  for (size_t group = 0; group < of_variance.size(); ++group) {
    error.mean[group] += kUnit * std::abs(statistics.mean[group]);
    const double share = of_variance[group] * kSecondOrder / (statistics.variance[group] + static_cast<double>(shape.eps));
    error.rstd[group] = (share < 1.0 ? 1.0 / std::sqrt(1.0 - share) - 1.0 : std::numeric_limits<double>::infinity()) + kUnit;
  }
  return error;
}

template <typename Scalar>
void compare_forward(const NormCase& one, const Array<Scalar>& x, const Array<Scalar>& weight, const Array<Scalar>& bias,
                     const ForwardRun<Scalar>& run) {
  const NormStatistics statistics = statistics_of(one, x);
  const StatisticsError error = statistics_error(one, x, statistics);
  std::vector<double> rstd(statistics.mean.size());
  {
    Comparison of_mean("mean of " + one.name()), of_rstd("rstd of " + one.name());
    for (size_t group = 0; group < rstd.size(); ++group) {
      const auto place = static_cast<int64_t>(group);
      rstd[group] = 1.0 / std::sqrt(statistics.variance[group] + static_cast<double>(one.shape.eps));
      of_mean.near(place, run.mean[place], statistics.mean[group], error.mean[group]);
      of_rstd.near(place, run.rstd[place], rstd[group], error.rstd[group] * rstd[group]);
    }
  }
  Comparison of_y("group norm of " + one.name());
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto group = static_cast<size_t>(one.group_of(i));
    const double w = weight[one.channel_of(i)], centred = x[i] - statistics.mean[group];
    const double z = centred * rstd[group] * w + bias[one.channel_of(i)];
    double bound =
        std::abs(w) * rstd[group] * (error.mean[group] + std::abs(centred) * (error.rstd[group] + 3 * kUnit)) + kUnit * std::abs(z);
    double want = z;
    if (one.shape.with_silu) {
      want = z * sigmoid_of(z);
      bound = kSteepestSilu * bound + 7 * kUnit * std::abs(want);
    }
    of_y.near(i, run.y[i], want, bound + rounding_of<Scalar>(want));
  }
}

// Common features, a large mean, one that differs between channels, and no variance at all.
template <typename Scalar>
Array<Scalar> random_features(const NormCase& one, Draws& draws) {
  const double mean = draws.chance(0.1) ? 1000.0 : 3.0 * draws.normal(), deviation = draws.chance(0.05) ? 0.0 : 2.0 * draws.uniform();
  const double lift = draws.chance(0.3) ? 4.0 : 0.0;
  Array<Scalar> x(one.size(), one.offset);
  for (int64_t i = 0; i < one.size(); ++i) {
    x.data()[i] = rounded_to<Scalar>(mean + lift * static_cast<double>(one.channel_of(i) % 5) + deviation * draws.normal());
  }
  return x;
}

template <typename Scalar>
void check_forward(bool with_vectors, bool with_silu) {
  Draws draws(41 + (with_vectors ? 1 : 0) + (with_silu ? 2 : 0));
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const NormCase one = random_norm_case<Scalar>(draws, with_vectors, with_silu);
    const auto normal = [](Draws& d) { return d.normal(); };
    const Array<Scalar> x = random_features<Scalar>(one, draws), weight(one.shape.num_channels, draws, normal, one.offset),
                        bias(one.shape.num_channels, draws, normal, one.offset);
    const auto first = run_forward(one, x, weight, bias, kOrders[0]), second = run_forward(one, x, weight, bias, kOrders[1]);
    EXPECT_TRUE(first.y.has_bits_of(second.y) && first.mean.has_bits_of(second.mean) && first.rstd.has_bits_of(second.rstd))
        << one.name() << ": other bits in another order";
    compare_forward(one, x, weight, bias, first);
  }
}

TEST(group_norm_kernel, equals_the_definition_in_float32_vectors) { check_forward<float>(true, false); }
TEST(group_norm_kernel, equals_the_definition_in_float32_single_elements) { check_forward<float>(false, false); }
TEST(group_norm_kernel, equals_the_definition_in_float16_vectors) { check_forward<__half>(true, false); }
TEST(group_norm_kernel, equals_the_definition_in_float16_single_elements) { check_forward<__half>(false, false); }
TEST(group_norm_kernel, equals_the_definition_in_bfloat16_vectors) { check_forward<__nv_bfloat16>(true, false); }
TEST(group_norm_kernel, equals_the_definition_in_bfloat16_single_elements) { check_forward<__nv_bfloat16>(false, false); }
TEST(group_norm_kernel, with_silu_equals_the_definition_in_float32_vectors) { check_forward<float>(true, true); }
TEST(group_norm_kernel, with_silu_equals_the_definition_in_float32_single_elements) { check_forward<float>(false, true); }
TEST(group_norm_kernel, with_silu_equals_the_definition_in_float16_vectors) { check_forward<__half>(true, true); }
TEST(group_norm_kernel, with_silu_equals_the_definition_in_float16_single_elements) { check_forward<__half>(false, true); }
TEST(group_norm_kernel, with_silu_equals_the_definition_in_bfloat16_vectors) { check_forward<__nv_bfloat16>(true, true); }
TEST(group_norm_kernel, with_silu_equals_the_definition_in_bfloat16_single_elements) { check_forward<__nv_bfloat16>(false, true); }

// A group's mean is infinite or NaN with one of its numbers, its variance NaN in any case: so are its values, and no others.
template <typename Scalar>
void check_what_is_not_finite(bool with_vectors, bool with_silu) {
  const NormCase one = small_norm_case<Scalar>(with_vectors, with_silu);
  Draws draws(47);
  const auto normal = [](Draws& d) { return d.normal(); };
  const Array<Scalar> finite(one.size(), draws, normal), weight(one.shape.num_channels, draws, normal),
      bias(one.shape.num_channels, draws, normal);
  const auto want = run_forward(one, finite, weight, bias, 1);
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (int64_t place = 0; place < one.size(); ++place) {
      Array<Scalar> x(finite);
      x.data()[place] = rounded_to<Scalar>(bad);
      const auto got = run_forward(one, x, weight, bias, 1);
      for (int64_t i = 0; i < one.size() && !testing::Test::HasFailure(); ++i) {
        const bool is_beside = one.group_of(i) == one.group_of(place);
        EXPECT_TRUE(is_beside ? std::isnan(got.y[i]) : got.y[i] == want.y[i]) << bad << " at " << place << ", " << got.y[i] << " at " << i;
      }
    }
  }
}

TEST(group_norm_kernel, makes_nan_of_the_group_of_an_infinity_or_nan) {
  for (const bool with_vectors : {true, false}) {
    for (const bool with_silu : {true, false}) {
      check_what_is_not_finite<float>(with_vectors, with_silu);
      check_what_is_not_finite<__half>(with_vectors, with_silu);
      check_what_is_not_finite<__nv_bfloat16>(with_vectors, with_silu);
    }
  }
}

TEST(group_norm_kernel, rounds_what_float16_does_not_hold_to_infinity) {
  const NormCase one = small_norm_case<__half>(true, false);
  Array<__half> x(one.size()), weight(one.shape.num_channels), bias(one.shape.num_channels);
  for (int64_t i = 0; i < one.size(); ++i) {  // As many 1 as -1 a group: z is 80,000, 0 or -80,000, but for eps.
    x.data()[i] = rounded_to<__half>(i % 2 == 0 ? 1.0 : -1.0);
    weight.data()[one.channel_of(i)] = rounded_to<__half>(40000.0);
    bias.data()[one.channel_of(i)] = rounded_to<__half>(one.channel_of(i) < 8 ? 40000.0 : -40000.0);
  }
  const auto run = run_forward(one, x, weight, bias, 1);
  for (int64_t i = 0; i < one.size(); ++i) {
    const double sum = 40000.0 * x[i] + bias[one.channel_of(i)];
    EXPECT_TRUE(sum == 0.0 ? std::abs(run.y[i]) < 1.0 : std::isinf(run.y[i]) && run.y[i] * sum > 0.0) << run.y[i] << " at " << i;
  }
}

TEST(group_norm_kernel, returns_an_error_for_more_samples_than_a_grid_takes) {
  const NormCase one{{Element::kFloat32, false, 65536, 1, 1, 1, 1e-5F}, 0};
  Array<float> x(one.size()), y(one.size()), weight(1), bias(1), mean(one.num_statistics()), rstd(one.num_statistics()),
      partials(one.num_partials()), sums(2 * one.shape.num_samples);
  EXPECT_EQ(
      launch_group_norm(one.shape, {x.data(), weight.data(), bias.data(), y.data(), mean.data(), rstd.data(), partials.data(), sums.data()},
                        nullptr),
      cudaErrorInvalidConfiguration);
  EXPECT_NE(emulation::take_fault().find("1 x 65536 x 1 blocks"), std::string::npos);
}

}  // namespace
}  // namespace darkroom::kernel_tests
