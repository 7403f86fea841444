#include "darkroom/diffusion/guidance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "golden_file.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

// Answers with the mean of its states, a constant picture.
const ConditionalDenoiser kMeanOfStates = [](const torch::Tensor& noisy, const torch::Tensor& timesteps_n, const torch::Tensor& states) {
  EXPECT_EQ(noisy.size(0), states.size(0));
  EXPECT_EQ(timesteps_n.size(0), states.size(0));
  return noisy * 0 + states.mean({1, 2}).view({-1, 1, 1, 1});
};

TEST(guidance, mixes_both_branches_in_the_order_negative_positive) {
  const torch::Tensor noisy = torch::zeros({3, 1, 2, 2});
  const torch::Tensor steps = torch::full({3}, 5, torch::kInt64);
  const torch::Tensor negative = torch::full({3, 2, 2}, 1.0);
  const torch::Tensor positive = torch::full({3, 2, 2}, 2.0);
  EXPECT_TRUE(
      torch::equal(guided_denoiser(kMeanOfStates, negative, positive, {.scale = 3.0})(noisy, steps), torch::full({3, 1, 2, 2}, 4.0)));
  EXPECT_TRUE(torch::equal(guided_denoiser(kMeanOfStates, {}, positive, {.scale = 1.0})(noisy, steps), torch::full({3, 1, 2, 2}, 2.0)));
  EXPECT_FALSE(Guidance{.scale = 1.0}.is_active());
  EXPECT_TRUE(Guidance{.scale = 1.0001}.is_active());
}

TEST(guidance, is_worked_out_in_float32_of_a_network_in_half_precision) {
  const torch::Tensor noisy = torch::zeros({1, 1, 1, 1});
  const torch::Tensor steps = torch::full({1}, 5, torch::kInt64);
  const ConditionalDenoiser network = [](const torch::Tensor&, const torch::Tensor&, const torch::Tensor& states) {
    return states.mean({1, 2}).view({-1, 1, 1, 1}).to(torch::kBFloat16);
  };
  const torch::Tensor negative = torch::full({1, 2, 2}, 1.0);
  const torch::Tensor positive = torch::full({1, 2, 2}, 1.0 + 0x1p-7);
  const torch::Tensor guided = guided_denoiser(network, negative, positive, {.scale = 1.25})(noisy, steps);
  EXPECT_EQ(guided.scalar_type(), torch::kFloat32);
  EXPECT_EQ(guided.item<float>(), 1.0F + 1.25F * 0x1p-7F);  // Which bfloat16 does not hold.
  EXPECT_EQ(guided_denoiser(network, {}, positive, {.scale = 1.0})(noisy, steps).scalar_type(), torch::kFloat32);
}

TEST(guidance, rescale_gives_each_picture_the_conditional_deviation) {
  const torch::Tensor conditional = golden_start() - 0.5;
  const ConditionalDenoiser network = [&](const torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
    return torch::cat({conditional.flip({2}), conditional});
  };
  const torch::Tensor states = torch::zeros({4, 2, 2});
  const torch::Tensor steps = torch::full({4}, 5, torch::kInt64);
  const auto guided = [&](double rescale) {
    return guided_denoiser(network, states, states, {.scale = 7.5, .rescale = rescale})(conditional, steps);
  };
  const torch::Tensor wanted = conditional.std({1, 2, 3}, true, false);
  const torch::Tensor plain = guided(0.0);
  EXPECT_GT((plain.std({1, 2, 3}, true, false) / wanted).min().item<double>(), 1.1);
  EXPECT_TRUE(is_near(guided(1.0).std({1, 2, 3}, true, false), wanted, 1e-5));
  EXPECT_TRUE(is_near(guided(0.7), 0.7 * guided(1.0) + 0.3 * plain, 1e-5));
}

TEST(guidance, refuses_what_is_no_share) {
  EXPECT_TRUE(Guidance{}.validate().is_ok());
  for (const double rescale : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ((Guidance{.rescale = rescale}.validate().code()), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Guidance{.scale = HUGE_VAL}.validate().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
