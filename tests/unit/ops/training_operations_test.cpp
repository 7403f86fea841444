#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/ops/add_noise.h"
#include "darkroom/ops/counter_normal.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

constexpr double kUlp = std::numeric_limits<float>::epsilon();

TEST(AddNoiseTest, equals_the_definition_in_double) {
  torch::manual_seed(1);
  for (const auto& shape : {std::vector<int64_t>{1, 1}, {3, 4, 5, 7}, {2, 4, 8, 8}}) {
    const auto clean = torch::randn(shape), noise = torch::randn(shape), scales = torch::rand({shape[0], 2});
    std::vector<int64_t> broadcast(shape.size(), 1);
    broadcast[0] = shape[0];
    const auto a = scales.select(1, 0).to(torch::kFloat64).view(broadcast), s = scales.select(1, 1).to(torch::kFloat64).view(broadcast);
    const auto noisy = add_noise(clean, noise, scales);
    const auto both = add_noise_with_velocity(clean, noise, scales);
    // Two products and a sum: at most 1.5 roundings of values below 10.
    EXPECT_TRUE(is_near(noisy, a * clean + s * noise, 2 * kUlp * 10));
    EXPECT_TRUE(is_near(both.second, a * noise - s * clean, 2 * kUlp * 10));
    EXPECT_TRUE(torch::equal(both.first, noisy));
  }
}

TEST(AddNoiseTest, takes_no_samples_and_refuses_other_shapes) {
  EXPECT_EQ(add_noise(torch::empty({0, 4}), torch::empty({0, 4}), torch::empty({0, 2})).numel(), 0);
  EXPECT_THROW(add_noise(torch::empty({2, 4}), torch::empty({2, 3}), torch::empty({2, 2})), CheckFailure);
  EXPECT_THROW(add_noise(torch::empty({2, 4}), torch::empty({2, 4}), torch::empty({1, 2})), CheckFailure);
}

TEST(CounterNormalTest, rows_hold_the_draws_of_their_samples) {
  const uint64_t hash = hash_key("000000000042");
  const auto coordinates = torch::tensor({int64_t{0}, static_cast<int64_t>(hash), int64_t{(1 << 24) - 1}, int64_t{-1}}).view({2, 2});
  const auto draws = counter_normal(42, Purpose::kNoise, coordinates, {2, 3, 5});
  ASSERT_EQ(draws.sizes().vec(), (std::vector<int64_t>{2, 3, 5}));
  const CounterRandom first(42, Purpose::kNoise, 0, hash), second(42, Purpose::kNoise, (1 << 24) - 1, ~uint64_t{0});
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(draws[0].flatten()[i].item<float>(), first.normal(static_cast<uint64_t>(i)));
    EXPECT_EQ(draws[1].flatten()[i].item<float>(), second.normal(static_cast<uint64_t>(i)));
  }
}

TEST(CounterNormalTest, no_samples_have_no_draws_and_wrong_coordinates_are_a_bug) {
  EXPECT_EQ(counter_normal(1, Purpose::kNoise, torch::empty({0, 2}, torch::kInt64), {0, 4}).numel(), 0);
  EXPECT_THROW(counter_normal(1, Purpose::kNoise, torch::zeros({2, 2}, torch::kInt64), {3, 4}), CheckFailure);
  EXPECT_THROW(counter_normal(1, Purpose::kNoise, torch::zeros({2, 2}), {2, 4}), CheckFailure);
}

// Scalars of a first update with lr 1e-3, weight decay 1e-2, betas 0.9 and 0.999, EMA decay 0.9.
torch::Tensor scalars_of_first_update(double gradient_scale = 1.0, double max_norm = 0.0) {
  torch::Tensor scalars = torch::empty({AdamWScalar::kCount}, torch::kFloat64);
  double* values = scalars.data_ptr<double>();
  values[AdamWScalar::kGradientScale] = gradient_scale;
  values[AdamWScalar::kMaxGradientNorm] = max_norm;
  values[AdamWScalar::kWeightKeep] = 1.0 - 1e-3 * 1e-2;
  values[AdamWScalar::kFirstBlend] = 0.1;
  values[AdamWScalar::kSecondKeep] = 0.999;
  values[AdamWScalar::kSecondBlend] = 0.001;
  values[AdamWScalar::kRootBiasCorrection] = std::sqrt(0.001);
  values[AdamWScalar::kEpsilon] = 1e-8;
  values[AdamWScalar::kNegativeStep] = -1e-3 / 0.1;
  values[AdamWScalar::kEmaBlend] = 0.1;
  return scalars;
}

AdamWArrays arrays_of(int64_t size, torch::ScalarType gradients, bool with_copy) {
  torch::manual_seed(6);
  AdamWArrays arrays{.weights = torch::randn({size}),
                     .gradients = torch::randn({size}).to(gradients),
                     .first_moment = torch::zeros({size}),
                     .second_moment = torch::zeros({size}),
                     .ema = torch::randn({size}),
                     .compute = {}};
  if (with_copy) {
    arrays.compute = torch::zeros({size}, torch::kBFloat16);
  }
  return arrays;
}

class adamw_update_sizes : public testing::TestWithParam<int64_t> {};

TEST_P(adamw_update_sizes, equals_the_definition_in_double) {
  for (const bool is_mixed : {false, true}) {
    const AdamWArrays arrays = arrays_of(GetParam(), is_mixed ? torch::kBFloat16 : torch::kFloat32, is_mixed);
    const auto weights = arrays.weights.to(torch::kFloat64), gradient = 0.5 * arrays.gradients.to(torch::kFloat64);
    const auto ema = arrays.ema.to(torch::kFloat64);
    adamw_update(arrays, scalars_of_first_update(0.5));
    const auto first = 0.1 * gradient, second = 0.001 * gradient.square();
    const auto moved = weights * (1.0 - 1e-5) - 1e-3 * (first / 0.1) / ((second / 0.001).sqrt() + 1e-8);
    EXPECT_TRUE(is_near(arrays.first_moment, first, 4 * kUlp * first.abs()));
    EXPECT_TRUE(is_near(arrays.second_moment, second, 8 * kUlp * second.abs()));
    EXPECT_TRUE(is_near(arrays.weights, moved, 2 * kUlp * largest(weights) + 16 * kUlp * 1e-3));
    EXPECT_TRUE(is_near(arrays.ema, 0.9 * ema + 0.1 * moved, 8 * kUlp * std::max(largest(weights), 4.0)));
    if (is_mixed) {
      EXPECT_TRUE(torch::equal(arrays.compute, arrays.weights.to(torch::kBFloat16)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(hostile, adamw_update_sizes, testing::Values(1, 3, 2047, 2048, 2049, 70001));

TEST(AdamWUpdateTest, bfloat16_gradients_are_those_numbers_in_float32) {
  const AdamWArrays narrow = arrays_of(5000, torch::kBFloat16, true);
  AdamWArrays wide = arrays_of(5000, torch::kBFloat16, false);
  wide.gradients = wide.gradients.to(torch::kFloat32);
  adamw_update(narrow, scalars_of_first_update());
  adamw_update(wide, scalars_of_first_update());
  EXPECT_TRUE(torch::equal(narrow.weights, wide.weights));
  EXPECT_TRUE(torch::equal(narrow.ema, wide.ema));
}

TEST(AdamWUpdateTest, a_scale_that_is_not_finite_changes_nothing) {
  for (const double scale : {std::nan(""), static_cast<double>(INFINITY)}) {
    const AdamWArrays arrays = arrays_of(100, torch::kFloat32, true), same = arrays_of(100, torch::kFloat32, true);
    adamw_update(arrays, scalars_of_first_update(scale));
    EXPECT_TRUE(torch::equal(arrays.weights, same.weights));
    EXPECT_TRUE(torch::equal(arrays.first_moment, same.first_moment));
    EXPECT_TRUE(torch::equal(arrays.ema, same.ema));
    EXPECT_TRUE(torch::equal(arrays.compute, same.compute));
  }
}

TEST(AdamWUpdateTest, arrays_of_other_lengths_or_types_are_bugs) {
  AdamWArrays arrays = arrays_of(10, torch::kFloat32, false);
  arrays.ema = torch::zeros({9});
  EXPECT_THROW(adamw_update(arrays, scalars_of_first_update()), CheckFailure);
  arrays = arrays_of(10, torch::kFloat64, false);
  EXPECT_THROW(adamw_update(arrays, scalars_of_first_update()), CheckFailure);
  arrays = arrays_of(10, torch::kFloat32, false);
  EXPECT_THROW(adamw_update(arrays, torch::zeros({3}, torch::kFloat64)), CheckFailure);
}

TEST(SquaredNormTest, equals_double_precision_at_hostile_sizes_in_both_types) {
  for (const int64_t size : {0, 1, 7, 8, 9, 16383, 16384, 16385, 100003}) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      torch::manual_seed(1);
      const auto values = torch::randn({size}).to(type);
      const double want = values.to(torch::kFloat64).square().sum().item<double>();
      EXPECT_TRUE(is_near(squared_norm(values).item<double>(), want, 1e-12 * want)) << size;
    }
  }
}

double scale_for(double squared, const torch::Tensor& losses, double max_norm) {
  const torch::Tensor scalars = scalars_of_first_update(1.0, max_norm);
  clip_scale(torch::full({1}, squared, torch::kFloat64), losses, scalars);
  return scalars[AdamWScalar::kGradientScale].item<double>();
}

TEST(ClipScaleTest, is_the_coefficient_of_torch_and_not_a_number_when_something_is_not_finite) {
  const torch::Tensor fine = torch::ones({3});
  EXPECT_DOUBLE_EQ(scale_for(16.0, fine, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(scale_for(0.25, fine, 1.0), 1.0);
  EXPECT_EQ(scale_for(0.0, fine, 1.0), 1.0);
  EXPECT_EQ(scale_for(1e6, fine, 0.0), 1.0);
  EXPECT_TRUE(std::isnan(scale_for(INFINITY, fine, 1.0)));
  EXPECT_TRUE(std::isnan(scale_for(std::nan(""), fine, 0.0)));
  for (const double bad : {static_cast<double>(INFINITY), std::nan("")}) {
    const torch::Tensor losses = torch::ones({3});
    losses[1] = bad;
    EXPECT_TRUE(std::isnan(scale_for(1.0, losses, 1.0)));
  }
}

}  // namespace
}  // namespace darkroom
