#include "group_norm_cases.h"

// group_norm_backward.cu against the gradients in double, for the mean and rstd (float32) that the forward kernel would have saved. With
// xhat = (x - mean) rstd, z = xhat weight + bias and q = dL/dz, which is dL/dy silu'(z) under silu:
//   bias: sum q; weight: sum q xhat; x: rstd (q weight - (S1 + xhat S2) / m), S1 = sum q weight and S2 = sum q weight xhat over a group.
//
// Bounds, u = 2^-24 the rounding of float32, r that of the result's type (rounding_of), P pixels, m elements of a group. A sum of n rounded
// terms is off by n u times the sum of their sizes, in whatever order.
//   xhat: 2u of itself. z: e_z = 3u |xhat w| + u |z|.
//   silu' = s K with s = sigmoid(z), off by 6u (expf by 4u, sum and quotient by 2u), and K = 1 + z (1 - s), off by
//   e_K = |z| (6u s + 2u (1 - s)) + u |K|. Two products: q is off by e_q = |dy| (s e_K + 8u |s K| + e_z / 2), for |silu''| <= 1/2.
//   A channel's sums over the pixels of a sample: E1 = sum e_q + P u sum|q|; E2 = sum (e_q |xhat| + 3u |q xhat|) + P u sum|q xhat|.
//   Gradients of bias and weight: the sums of E over the samples, N u of the sums' sizes, r of the result.
//   S: sum over its channels of |w| E + u |w sum|, and as many u of their sizes; over m: 2u more (quotient and product).
//   x: rstd times the sum of |w| e_q + u |q w|, the error of S1 / m, |xhat| times that of S2 / m + 3u |xhat S2 / m|, and u of each of the
//   two differences; then u and r of the result.

namespace darkroom::kernel_tests {
namespace {

template <typename Scalar>
struct BackwardInputs {
  Array<Scalar> grad_y, x, weight, bias;
  Array<float> mean, rstd;
};

template <typename Scalar>
struct BackwardRun {
  Array<Scalar> grad_x, grad_weight, grad_bias;
};

template <typename Scalar>
BackwardRun<Scalar> run_backward(const NormCase& one, const BackwardInputs<Scalar>& in, uint64_t order) {
  const int64_t channels = one.shape.num_channels;
  BackwardRun<Scalar> run{Array<Scalar>(one.size(), one.offset), Array<Scalar>(channels), Array<Scalar>(channels)};
  Array<float> partials(one.num_partials()), sums(2 * one.shape.num_samples * channels), group_sums(2 * one.num_statistics());
  run_in_order(order, [&] {
    return launch_group_norm_backward(
        one.shape,
        {in.grad_y.data(), in.x.data(), in.weight.data(), in.bias.data(), in.mean.data(), in.rstd.data(), run.grad_x.data(),
         run.grad_weight.data(), run.grad_bias.data(), partials.data(), sums.data(), group_sums.data()},
        nullptr);
  });
  return run;
}

// One element's xhat and q, and the error of q.
struct ElementGradient {
  double xhat, q, error;
};

ElementGradient element_gradient(double x, double mean, double rstd, double weight, double bias, double grad_y, bool with_silu) {
  const double xhat = (x - mean) * rstd, z = xhat * weight + bias;
  if (!with_silu) {
    return {xhat, grad_y, 0.0};
  }
  const double s = sigmoid_of(z), k = 1.0 + z * (1.0 - s);
  const double z_error = kUnit * (3 * std::abs(xhat * weight) + std::abs(z));
  const double k_error = kUnit * (std::abs(z) * (6 * s + 2 * (1.0 - s)) + std::abs(k));
  return {xhat, grad_y * s * k, std::abs(grad_y) * (s * k_error + 8 * kUnit * std::abs(s * k) + z_error / 2)};
}

// A sum with the sum of its terms' sizes and the error of its terms.
struct ErrorSum {
  double value = 0.0, sizes = 0.0, error = 0.0;

  void add(double term, double term_error) {
    value += term;
    sizes += std::abs(term);
    error += term_error;
  }
  /// The error of the sum of `terms` such terms in float32.
  double bound(int64_t terms) const { return error + static_cast<double>(terms) * kUnit * sizes; }
};

// Sums over pixels [N, C], over groups [N, G] and over samples [C]; of q first, of q xhat second.
struct GradientSums {
  std::vector<ErrorSum> channels[2], groups[2], samples[2];
};

template <typename Scalar>
ElementGradient gradient_at(const NormCase& one, const BackwardInputs<Scalar>& in, int64_t i) {
  const int64_t channel = one.channel_of(i), group = one.group_of(i);
  return element_gradient(in.x[i], in.mean[group], in.rstd[group], in.weight[channel], in.bias[channel], in.grad_y[i], one.shape.with_silu);
}

template <typename Scalar>
GradientSums sums_of(const NormCase& one, const BackwardInputs<Scalar>& in) {
  const GroupNormShape& shape = one.shape;
  GradientSums sums;
  for (int half = 0; half < 2; ++half) {
    sums.channels[half].resize(static_cast<size_t>(shape.num_samples * shape.num_channels));
    sums.groups[half].resize(static_cast<size_t>(one.num_statistics()));
    sums.samples[half].resize(static_cast<size_t>(shape.num_channels));
  }
  for (int64_t i = 0; i < one.size(); ++i) {
    const ElementGradient element = gradient_at(one, in, i);
    const auto place = static_cast<size_t>(i / (shape.num_pixels * shape.num_channels) * shape.num_channels + one.channel_of(i));
    const double product = element.q * element.xhat;
    sums.channels[0][place].add(element.q, element.error);
    sums.channels[1][place].add(product, element.error * std::abs(element.xhat) + 3 * kUnit * std::abs(product));
  }
  for (int half = 0; half < 2; ++half) {
    for (size_t place = 0; place < sums.channels[half].size(); ++place) {
      const ErrorSum& sum = sums.channels[half][place];
      const auto sample = static_cast<int64_t>(place) / shape.num_channels, channel = static_cast<int64_t>(place) % shape.num_channels;
      const double error = sum.bound(shape.num_pixels), weight = in.weight[channel];
      sums.samples[half][static_cast<size_t>(channel)].add(sum.value, error);
      sums.groups[half][static_cast<size_t>(sample * shape.num_groups + channel / one.group_channels())].add(
          weight * sum.value, std::abs(weight) * error + kUnit * std::abs(weight * sum.value));
    }
  }
  return sums;
}

template <typename Scalar>
void compare_parameters(const NormCase& one, const GradientSums& sums, const BackwardRun<Scalar>& run) {
  Comparison of_bias("gradient of the bias, " + one.name()), of_weight("gradient of the weight, " + one.name());
  for (int64_t channel = 0; channel < one.shape.num_channels; ++channel) {
    const ErrorSum &bias = sums.samples[0][static_cast<size_t>(channel)], &weight = sums.samples[1][static_cast<size_t>(channel)];
    of_bias.near(channel, run.grad_bias[channel], bias.value, bias.bound(one.shape.num_samples) + rounding_of<Scalar>(bias.value));
    of_weight.near(channel, run.grad_weight[channel], weight.value,
                   weight.bound(one.shape.num_samples) + rounding_of<Scalar>(weight.value));
  }
}

template <typename Scalar>
void compare_grad_x(const NormCase& one, const BackwardInputs<Scalar>& in, const GradientSums& sums, const BackwardRun<Scalar>& run) {
  Comparison comparison("gradient of x, " + one.name());
  const auto terms = static_cast<double>(one.group_size());
  for (int64_t i = 0; i < one.size(); ++i) {
    const ElementGradient element = gradient_at(one, in, i);
    const auto group = static_cast<size_t>(one.group_of(i));
    const double weight = in.weight[one.channel_of(i)], rstd = in.rstd[static_cast<int64_t>(group)];
    const ErrorSum &first = sums.groups[0][group], &second = sums.groups[1][group];
    const double own = element.q * weight, first_mean = first.value / terms, second_mean = second.value / terms;
    const double want = rstd * (own - first_mean - element.xhat * second_mean);
    const double bound = std::abs(weight) * element.error + kUnit * std::abs(own) +                                                   //
                         first.bound(one.group_channels()) / terms + 2 * kUnit * std::abs(first_mean) +                               //
                         std::abs(element.xhat) * (second.bound(one.group_channels()) / terms + 5 * kUnit * std::abs(second_mean)) +  //
                         kUnit * (std::abs(own - first_mean) + std::abs(want / rstd));
    comparison.near(i, run.grad_x[i], want, rstd * bound + kUnit * std::abs(want) + rounding_of<Scalar>(want));
  }
}

template <typename Scalar>
BackwardInputs<Scalar> random_inputs(const NormCase& one, Draws& draws) {
  const auto normal = [](Draws& d) { return d.normal(); };
  const double mean = 3.0 * draws.normal();
  const int64_t channels = one.shape.num_channels;
  BackwardInputs<Scalar> in{Array<Scalar>(one.size(), draws, normal, one.offset),
                            Array<Scalar>(
                                one.size(), draws, [mean](Draws& d) { return mean + 2.0 * d.normal(); }, one.offset),
                            Array<Scalar>(channels, draws, normal, one.offset),
                            Array<Scalar>(channels, draws, normal, one.offset),
                            Array<float>(one.num_statistics()),
                            Array<float>(one.num_statistics())};
  const NormStatistics statistics = statistics_of(one, in.x);
  for (size_t group = 0; group < statistics.mean.size(); ++group) {
    in.mean.data()[group] = static_cast<float>(statistics.mean[group]);
    in.rstd.data()[group] = static_cast<float>(1.0 / std::sqrt(statistics.variance[group] + static_cast<double>(one.shape.eps)));
  }
  return in;
}

template <typename Scalar>
void check_backward(bool with_vectors, bool with_silu) {
  Draws draws(51 + (with_vectors ? 1 : 0) + (with_silu ? 2 : 0));
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const NormCase one = random_norm_case<Scalar>(draws, with_vectors, with_silu);
    const BackwardInputs<Scalar> in = random_inputs<Scalar>(one, draws);
    const auto first = run_backward(one, in, kOrders[0]), second = run_backward(one, in, kOrders[1]);
    EXPECT_TRUE(first.grad_x.has_bits_of(second.grad_x) && first.grad_weight.has_bits_of(second.grad_weight) &&
                first.grad_bias.has_bits_of(second.grad_bias))
        << one.name() << ": other bits in another order";
    const GradientSums sums = sums_of(one, in);
    compare_parameters(one, sums, first);
    compare_grad_x(one, in, sums, first);
  }
}

TEST(group_norm_gradient_kernel, equals_the_definition_in_float32_vectors) { check_backward<float>(true, false); }
TEST(group_norm_gradient_kernel, equals_the_definition_in_float32_single_elements) { check_backward<float>(false, false); }
TEST(group_norm_gradient_kernel, equals_the_definition_in_float16_vectors) { check_backward<__half>(true, false); }
TEST(group_norm_gradient_kernel, equals_the_definition_in_float16_single_elements) { check_backward<__half>(false, false); }
TEST(group_norm_gradient_kernel, equals_the_definition_in_bfloat16_vectors) { check_backward<__nv_bfloat16>(true, false); }
TEST(group_norm_gradient_kernel, equals_the_definition_in_bfloat16_single_elements) { check_backward<__nv_bfloat16>(false, false); }
TEST(group_norm_gradient_kernel, with_silu_equals_the_definition_in_float32_vectors) { check_backward<float>(true, true); }
TEST(group_norm_gradient_kernel, with_silu_equals_the_definition_in_float32_single_elements) { check_backward<float>(false, true); }
TEST(group_norm_gradient_kernel, with_silu_equals_the_definition_in_float16_vectors) { check_backward<__half>(true, true); }
TEST(group_norm_gradient_kernel, with_silu_equals_the_definition_in_float16_single_elements) { check_backward<__half>(false, true); }
TEST(group_norm_gradient_kernel, with_silu_equals_the_definition_in_bfloat16_vectors) { check_backward<__nv_bfloat16>(true, true); }
TEST(group_norm_gradient_kernel, with_silu_equals_the_definition_in_bfloat16_single_elements) {
  check_backward<__nv_bfloat16>(false, true);
}

// A gradient that is not finite reaches its group's gradients of x, through S1, and those of its channel's weight and bias; no others.
template <typename Scalar>
void check_what_is_not_finite(bool with_vectors, bool with_silu) {
  const NormCase one = small_norm_case<Scalar>(with_vectors, with_silu);
  Draws draws(57);
  BackwardInputs<Scalar> in = random_inputs<Scalar>(one, draws);
  const auto want = run_backward(one, in, 1);
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (int64_t place = 0; place < one.size(); ++place) {
      const Scalar kept = in.grad_y.data()[place];
      in.grad_y.data()[place] = rounded_to<Scalar>(bad);
      const auto got = run_backward(one, in, 1);
      in.grad_y.data()[place] = kept;
      for (int64_t i = 0; i < one.size() && !testing::Test::HasFailure(); ++i) {
        const bool is_beside = one.group_of(i) == one.group_of(place);
        EXPECT_TRUE(is_beside ? !std::isfinite(got.grad_x[i]) : got.grad_x[i] == want.grad_x[i]) << bad << " at " << place << ", x " << i;
        const int64_t channel = one.channel_of(i);
        const double weight = got.grad_weight[channel], bias = got.grad_bias[channel];
        EXPECT_TRUE(channel == one.channel_of(place) ? !std::isfinite(weight) && !std::isfinite(bias)
                                                     : weight == want.grad_weight[channel] && bias == want.grad_bias[channel])
            << bad << " at " << place << ", channel " << channel;
      }
    }
  }
}

TEST(group_norm_gradient_kernel, of_infinities_and_nan_is_not_finite_in_their_group_alone) {
  for (const bool with_vectors : {true, false}) {
    for (const bool with_silu : {true, false}) {
      check_what_is_not_finite<float>(with_vectors, with_silu);
      check_what_is_not_finite<__half>(with_vectors, with_silu);
      check_what_is_not_finite<__nv_bfloat16>(with_vectors, with_silu);
    }
  }
}

// The loss sum(c y) in double, for the slope below.
double loss_of(const NormCase& one, const std::vector<double>& x, const BackwardInputs<float>& in) {
  Array<double> wide(one.size());
  std::copy(x.begin(), x.end(), wide.data());
  const NormStatistics statistics = statistics_of(one, wide);
  double loss = 0.0;
  for (int64_t i = 0; i < one.size(); ++i) {
    const auto group = static_cast<size_t>(one.group_of(i));
    const double rstd = 1.0 / std::sqrt(statistics.variance[group] + static_cast<double>(one.shape.eps));
    const double z =
        (x[static_cast<size_t>(i)] - statistics.mean[group]) * rstd * in.weight[one.channel_of(i)] + in.bias[one.channel_of(i)];
    loss += in.grad_y[i] * (one.shape.with_silu ? z * sigmoid_of(z) : z);
  }
  return loss;
}

// The formulas at the top of this file against differences of the definition.
TEST(group_norm_gradient_kernel, the_reference_gradient_is_the_slope_of_the_definition) {
  constexpr double kStep = 1e-4;
  Draws draws(59);
  for (const bool with_silu : {false, true}) {
    const NormCase one{{Element::kFloat32, with_silu, 2, 5, 6, 3, 1e-5F}, 0};
    const BackwardInputs<float> in = random_inputs<float>(one, draws);
    const GradientSums sums = sums_of(one, in);
    std::vector<double> x;
    for (int64_t i = 0; i < one.size(); ++i) {
      x.push_back(in.x[i]);
    }
    for (int64_t i = 0; i < one.size(); ++i) {
      const ElementGradient element = gradient_at(one, in, i);
      const auto group = static_cast<size_t>(one.group_of(i));
      const double means =
          (sums.groups[0][group].value + element.xhat * sums.groups[1][group].value) / static_cast<double>(one.group_size());
      const double formula = in.rstd[static_cast<int64_t>(group)] * (element.q * in.weight[one.channel_of(i)] - means);
      std::vector<double> moved = x;
      moved[static_cast<size_t>(i)] += kStep;
      const double above = loss_of(one, moved, in);
      moved[static_cast<size_t>(i)] -= 2 * kStep;
      const double slope = (above - loss_of(one, moved, in)) / (2 * kStep);
      // mean and rstd are rounded to float32: a few u of values up to 10; the difference quotient: step^2 times third derivatives below
      // 100.
      EXPECT_TRUE(is_near(formula, slope, 100 * kUnit + 100 * kStep * kStep)) << i;
    }
  }
}

}  // namespace
}  // namespace darkroom::kernel_tests
