#include "darkroom/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "darkroom/optim/clip.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

constexpr double kUlp = std::numeric_limits<float>::epsilon();

struct OneVector : torch::nn::Module {
  explicit OneVector(int64_t size) {
    torch::manual_seed(3);
    values = register_parameter("values", torch::randn({size}));
  }
  torch::Tensor values;
};

torch::Tensor gradient_of_step(int64_t size, int step) {
  torch::manual_seed(static_cast<uint64_t>(100 + step));
  return torch::randn({size}) * std::pow(10.0, step % 4 - 2);
}

class adamw_sizes : public testing::TestWithParam<int64_t> {};

TEST_P(adamw_sizes, equals_the_adamw_of_torch) {
  OneVector ours(GetParam());
  OneVector theirs(GetParam());
  FlatParameters flat(ours);
  AdamW adamw(flat, {});
  torch::optim::AdamW reference(theirs.parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(1e-2));
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor gradient = gradient_of_step(GetParam(), step);
    flat.gradients().copy_(gradient);
    theirs.values.mutable_grad() = gradient;
    adamw.update(1e-3, 1.0, nullptr);
    reference.step();
  }
  // A step moves a weight by about lr and rounds a few values of the weight's size.
  EXPECT_TRUE(is_near(ours.values, theirs.values, 20 * (4 * kUlp * largest(theirs.values) + 16 * kUlp * 1e-3)));
  EXPECT_EQ(adamw.num_updates(), 20);
}

INSTANTIATE_TEST_SUITE_P(hostile, adamw_sizes, testing::Values(1, 7, 15, 16, 17, 2047, 2048, 2049, 70001));

TEST(adamw, bits_do_not_depend_on_threads) {
  constexpr int64_t kSize = 300'007;
  std::vector<torch::Tensor> results;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    OneVector module(kSize);
    FlatParameters flat(module);
    AdamW adamw(flat, {});
    Ema ema(flat, {.decay = 0.9});
    for (int step = 0; step < 3; ++step) {
      flat.gradients().copy_(gradient_of_step(kSize, step));
      adamw.update(1e-3, clip_coefficient(flat_norm(flat.gradients()), 1.0), &ema);
    }
    results.push_back(torch::stack({flat.values().clone(), ema.weights().clone(), adamw.second_moment().clone()}));
  }
  at::set_num_threads(1);
  EXPECT_TRUE(torch::equal(results[0], results[1]));
}

TEST(adamw, scales_gradients_before_the_moments) {
  OneVector module(3);
  FlatParameters flat(module);
  AdamW adamw(flat, {});
  flat.gradients().fill_(8.0);
  adamw.update(1e-3, 0.5, nullptr);
  EXPECT_TRUE(is_near(adamw.first_moment(), torch::full({3}, 0.4F), accumulation_tolerance<float>(1, 0.4)));
}

TEST(adamw, continues_from_restored_moments_bit_for_bit) {
  OneVector first(100);
  OneVector second(100);
  FlatParameters flat(first);
  FlatParameters restored_flat(second);
  AdamW adamw(flat, {});
  for (int step = 0; step < 3; ++step) {
    flat.gradients().copy_(gradient_of_step(100, step));
    adamw.update(1e-3, 1.0, nullptr);
  }
  AdamW restored(restored_flat, {});
  restored_flat.values().copy_(flat.values());
  restored.first_moment().copy_(adamw.first_moment());
  restored.second_moment().copy_(adamw.second_moment());
  restored.set_num_updates(adamw.num_updates());
  for (auto* continued : {&adamw, &restored}) {
    FlatParameters& parameters = continued == &adamw ? flat : restored_flat;
    parameters.gradients().copy_(gradient_of_step(100, 3));
    continued->update(1e-3, 1.0, nullptr);
  }
  EXPECT_TRUE(torch::equal(flat.values(), restored_flat.values()));
}

TEST(adamw, bad_options_are_named) {
  for (const AdamWOptions& options : {AdamWOptions{.beta1 = 1.0}, AdamWOptions{.beta2 = -0.1}, AdamWOptions{.epsilon = 0.0},
                                      AdamWOptions{.weight_decay = std::nan("")}}) {
    EXPECT_EQ(options.validate().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(AdamWOptions{}.validate().is_ok());
}

TEST(ema, follows_the_weights_with_its_decay) {
  OneVector module(5);
  FlatParameters flat(module);
  AdamW adamw(flat, {});
  Ema ema(flat, {.decay = 0.75, .warmup = false});
  const torch::Tensor start = flat.values().clone();
  flat.gradients().fill_(1.0);
  adamw.update(0.1, 1.0, &ema);
  EXPECT_TRUE(is_near(ema.weights(), start * 0.75 + flat.values() * 0.25, accumulation_tolerance<float>(2, largest(start))));
}

TEST(ema, warms_up_from_a_tenth) {
  OneVector module(1);
  const FlatParameters flat(module);
  const Ema warm(flat, {.decay = 0.9999, .warmup = true});
  EXPECT_DOUBLE_EQ(warm.decay_at(0), 0.1);
  EXPECT_DOUBLE_EQ(warm.decay_at(90), 0.91);
  EXPECT_DOUBLE_EQ(warm.decay_at(10'000'000), 0.9999);
  EXPECT_EQ((EmaOptions{.decay = 1.0}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE((EmaOptions{.decay = 0.0}).validate().is_ok());
}

TEST(ema, decay_zero_is_the_weights_themselves) {
  OneVector module(5);
  FlatParameters flat(module);
  Ema ema(flat, {.decay = 0.0});
  AdamW adamw(flat, {});
  flat.gradients().fill_(0.5);
  adamw.update(1e-2, 1.0, &ema);
  EXPECT_FALSE(ema.averages());
  EXPECT_TRUE(ema.weights().is_same(flat.values()));
  const torch::Tensor trained = flat.values().clone();
  {
    const EmaScope averaged(flat, ema);
    EXPECT_TRUE(torch::equal(flat.values(), trained));
  }
  EXPECT_TRUE(torch::equal(flat.values(), trained));
}

TEST(ema, a_scope_lends_the_average_and_gives_everything_back) {
  OneVector module(9);
  FlatParameters flat(module);
  Ema ema(flat, {});
  ema.weights().fill_(2.5);
  const torch::Tensor trained = flat.values().clone();
  {
    const EmaScope scope(flat, ema);
    EXPECT_TRUE(torch::equal(module.values.detach(), torch::full({9}, 2.5F)));
  }
  EXPECT_TRUE(torch::equal(flat.values(), trained));
  EXPECT_TRUE(torch::equal(ema.weights(), torch::full({9}, 2.5F)));
}

TEST(clip, norm_equals_double_precision_at_hostile_sizes) {
  for (const int64_t size : {0, 1, 7, 8, 9, 16383, 16384, 16385, 100003}) {
    torch::manual_seed(1);
    const torch::Tensor values = torch::randn({size});
    const double want = size == 0 ? 0.0 : values.to(torch::kFloat64).norm().item<double>();
    EXPECT_TRUE(is_near(flat_norm(values), want, 1e-12 * want)) << size;
  }
}

TEST(clip, coefficient_is_that_of_torch) {
  EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(1000.0, 0.0), 1.0);
}

}  // namespace
}  // namespace darkroom
