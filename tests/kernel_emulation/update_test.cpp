#include <algorithm>
#include <array>
#include <optional>

#include "darkroom/ops/adamw_scalar.h"
#include "kernel_cases.h"
#include "ops/fused_update.h"

// update.cu: the update has the bits of the CPU's (src/ops/fused_update.cpp), the clip scale those of its formula in double. Squares of
// float32 are exact in double, so the norm of n numbers is off by n roundings of 2^-53.

namespace darkroom::kernel_tests {
namespace {

using Scalars = std::array<double, AdamWScalar::kCount>;

Scalars random_update_scalars(Draws& draws) {
  const double step = static_cast<double>(draws.between(1, 5000)), lr = 1e-4 * draws.uniform();
  Scalars scalars{};
  scalars[AdamWScalar::kGradientScale] = draws.chance(0.5) ? 1.0 : draws.uniform();
  scalars[AdamWScalar::kMaxGradientNorm] = 1.0;
  scalars[AdamWScalar::kWeightKeep] = 1.0 - lr * 1e-2;
  scalars[AdamWScalar::kFirstBlend] = 0.1;
  scalars[AdamWScalar::kSecondKeep] = 0.999;
  scalars[AdamWScalar::kSecondBlend] = 0.001;
  scalars[AdamWScalar::kRootBiasCorrection] = std::sqrt(1 - std::pow(0.999, step));
  scalars[AdamWScalar::kEpsilon] = 1e-8;
  scalars[AdamWScalar::kNegativeStep] = -lr / (1 - std::pow(0.9, step));
  scalars[AdamWScalar::kEmaBlend] = 1e-4 + draws.uniform() * 0.1;
  return scalars;
}

template <typename Gradient>
struct UpdateArrays {
  Array<float> weights, first, second, ema;
  Array<Gradient> gradients;
  Array<__nv_bfloat16> compute;

  UpdateArrays(int64_t size, Draws& draws)
      : weights(size, draws, [](Draws& d) { return d.normal(); }),
        first(size, draws, [](Draws& d) { return 0.1 * d.normal(); }),
        second(size, draws, [](Draws& d) { return d.chance(0.05) ? 0.0 : 0.01 * d.uniform(); }),
        ema(size, draws, [](Draws& d) { return d.normal(); }),
        gradients(size, draws, [](Draws& d) { return d.chance(0.05) ? 0.0 : d.normal(); }),
        compute(size) {}

  AdamWPointers pointers(bool with_ema, bool with_compute) {
    return {.weights = weights.data(),
            .gradients = gradients.data(),
            .first_moment = first.data(),
            .second_moment = second.data(),
            .ema = with_ema ? ema.data() : nullptr,
            .compute = with_compute ? compute.data() : nullptr};
  }

  void expect_bits_of(const UpdateArrays& want, const std::string& name) const {
    EXPECT_TRUE(weights.has_bits_of(want.weights)) << name << ": weights";
    EXPECT_TRUE(first.has_bits_of(want.first)) << name << ": first moment";
    EXPECT_TRUE(second.has_bits_of(want.second)) << name << ": second moment";
    EXPECT_TRUE(ema.has_bits_of(want.ema)) << name << ": EMA";
    EXPECT_TRUE(compute.has_bits_of(want.compute)) << name << ": compute copy";
  }
};

// What the CPU makes of the arrays (ops' adamw_update without torch).
template <typename Gradient>
void update_on_cpu(UpdateArrays<Gradient>& arrays, const Scalars& scalars, bool with_ema, bool with_compute) {
  const int64_t size = arrays.weights.size();
  Array<float> widened(size);
  for (int64_t i = 0; i < size; ++i) {
    widened.data()[i] = static_cast<float>(arrays.gradients[i]);
  }
  fused_adamw({.weights = arrays.weights.data(),
               .gradients = widened.data(),
               .first_moment = arrays.first.data(),
               .second_moment = arrays.second.data(),
               .ema = with_ema ? arrays.ema.data() : nullptr},
              rounded(scalars.data()), 0, size);
  for (int64_t i = 0; with_compute && i < size; ++i) {
    arrays.compute.data()[i] = __float2bfloat16_rn(arrays.weights.data()[i]);
  }
}

template <typename Gradient>
void check_updates() {
  Draws draws(kElement<Gradient> == Element::kFloat32 ? 31 : 32);
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const int64_t size = draws.between(0, draws.chance(0.2) ? 10'000 : 70);
    const bool with_ema = draws.chance(0.7), with_compute = draws.chance(0.5);
    Scalars scalars = random_update_scalars(draws);
    const UpdateArrays<Gradient> before(size, draws);
    UpdateArrays<Gradient> want(before);
    if (draws.chance(0.05)) {
      scalars[AdamWScalar::kGradientScale] = draws.chance(0.5) ? std::nan("") : std::numeric_limits<double>::infinity();
    } else {
      update_on_cpu(want, scalars, with_ema, with_compute);
    }
    for (const uint64_t order : kOrders) {
      UpdateArrays<Gradient> got(before);
      run_in_order(order, [&] {
        return launch_adamw_update(kElement<Gradient>, got.pointers(with_ema, with_compute), scalars.data(), size, nullptr);
      });
      got.expect_bits_of(want, std::to_string(size));
    }
  }
}

TEST(update_kernel, updates_with_the_cpus_bits_from_float32_gradients) { check_updates<float>(); }
TEST(update_kernel, updates_with_the_cpus_bits_from_bfloat16_gradients) { check_updates<__nv_bfloat16>(); }

template <typename Scalar>
void check_squared_norms() {
  Draws draws(kElement<Scalar> == Element::kFloat32 ? 33 : 34);
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const bool is_large = draws.chance(0.03);  // Many blocks of 16,384 elements.
    const int64_t size = is_large ? draws.between(16'380, 200'000) : draws.between(1, draws.chance(0.1) ? 9000 : 80);
    const Array<Scalar> values(size, draws, [](Draws& d) { return d.normal() * 3.0; });
    long double want = 0.0L;
    for (int64_t i = 0; i < size; ++i) {
      want += static_cast<long double>(values[i]) * static_cast<long double>(values[i]);
    }
    Array<double> first(1);
    for (const uint64_t order : kOrders) {
      Array<double> partials(norm_chunks(size)), sum(1);
      run_in_order(order, [&] { return launch_norm_partials(kElement<Scalar>, values.data(), size, partials.data(), nullptr); });
      run_in_order(order, [&] { return launch_add_partials(partials.data(), norm_chunks(size), sum.data(), nullptr); });
      if (order == kOrders[0]) {
        first.data()[0] = sum[0];
      }
      EXPECT_TRUE(sum.has_bits_of(first)) << size << ": other bits in another order";
    }
    EXPECT_TRUE(is_near(first[0], static_cast<double>(want), static_cast<double>(size) * 0x1p-53 * static_cast<double>(want))) << size;
  }
}

TEST(update_kernel, sums_squares_of_float32) { check_squared_norms<float>(); }
TEST(update_kernel, sums_squares_of_bfloat16) { check_squared_norms<__nv_bfloat16>(); }

TEST(update_kernel, refuses_gradients_in_float16) {
  Draws draws(36);
  const UpdateArrays<__half> before(8, draws);
  UpdateArrays<__half> arrays(before);
  const Scalars scalars = random_update_scalars(draws);
  EXPECT_EQ(launch_adamw_update(Element::kFloat16, arrays.pointers(true, true), scalars.data(), 8, nullptr), cudaErrorInvalidValue);
  arrays.expect_bits_of(before, "refused");
  Array<double> partials(1);
  const Array<double> unwritten(1);
  EXPECT_EQ(launch_norm_partials(Element::kFloat16, before.gradients.data(), 8, partials.data(), nullptr), cudaErrorInvalidValue);
  EXPECT_TRUE(partials.has_bits_of(unwritten));
}

TEST(update_kernel, scales_the_gradient_as_the_formula_says) {
  Draws draws(35);
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const int64_t num_losses = draws.between(0, draws.chance(0.1) ? 1500 : 40);
    Array<float> losses(num_losses, draws, [](Draws& d) { return d.uniform(); });
    const bool has_bad_loss = num_losses > 0 && draws.chance(0.3);
    if (has_bad_loss) {
      const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
      losses.data()[draws.between(0, num_losses - 1)] = bad[draws.between(0, 2)];
    }
    const bool has_bad_norm = draws.chance(0.1);
    const double squared = has_bad_norm ? (draws.chance(0.5) ? std::nan("") : std::numeric_limits<double>::infinity())
                                        : 4.0 * draws.uniform() * (draws.chance(0.2) ? 0.0 : 1.0);
    Scalars want = random_update_scalars(draws);
    want[AdamWScalar::kMaxGradientNorm] = draws.chance(0.2) ? 0.0 : draws.uniform();
    const Scalars before = want;
    const double most = want[AdamWScalar::kMaxGradientNorm];
    want[AdamWScalar::kGradientScale] = most > 0.0 ? std::min(1.0, most / (std::sqrt(squared) + 1e-6)) : 1.0;
    for (const uint64_t order : kOrders) {
      Scalars got = before;
      run_in_order(order, [&] { return launch_clip_scale(&squared, losses.data(), num_losses, got.data(), nullptr); });
      if (has_bad_loss || has_bad_norm) {
        EXPECT_TRUE(std::isnan(got[AdamWScalar::kGradientScale])) << num_losses << " losses, squared norm " << squared;
        got[AdamWScalar::kGradientScale] = want[AdamWScalar::kGradientScale] = 0.0;
      }
      EXPECT_EQ(got, want) << num_losses << " losses, squared norm " << squared;
    }
  }
}

}  // namespace
}  // namespace darkroom::kernel_tests
