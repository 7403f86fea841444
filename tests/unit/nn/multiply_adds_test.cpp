#include "darkroom/tensor/multiply_adds.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "darkroom/core/check.h"
#include "darkroom/nn/presets.h"
#include "darkroom/nn/unet.h"

namespace darkroom {
namespace {

TEST(multiply_adds, matrix_products_convolutions_and_attentions_are_counted_by_their_definition) {
  const auto a = torch::ones({3, 5}), b = torch::ones({5, 7});
  EXPECT_EQ(count_multiply_adds([&] { a.mm(b); }), 3 * 5 * 7);
  EXPECT_EQ(count_multiply_adds([&] { at::linear(a, b.t(), torch::ones({7})); }), 3 * 5 * 7);
  EXPECT_EQ(count_multiply_adds([&] {
              at::conv2d(torch::ones({2, 4, 8, 8}), torch::ones({6, 2, 3, 3}), {}, 1, 1, 1, 2);
            }),
            2 * 6 * 8 * 8 * 2 * 9);
  const auto q = torch::ones({2, 3, 10, 16}), k = torch::ones({2, 3, 4, 16});
  EXPECT_EQ(count_multiply_adds([&] { at::scaled_dot_product_attention(q, k, k); }), 2 * 3 * 10 * 4 * (16 + 16));
}

TEST(multiply_adds, elementwise_work_and_work_outside_are_not_counted) {
  const auto a = torch::ones({3, 5});
  EXPECT_EQ(count_multiply_adds([&] { (a * a).sum(); }), 0);
  a.mm(a.t());
  EXPECT_EQ(count_multiply_adds([] {}), 0);
}

// 52.3 + 34.0 + 3.8 + 0.4 billion at 256 px: convolutions, linear layers, self- and cross-attention of the published
// architecture, counted by hand.
TEST(multiply_adds, the_sd2_unet_has_the_published_architectures_count) {
  const torch::NoGradGuard no_grad;
  UNet2DConditionModel unet(find_preset("sd2-base").value().unet);
  const int64_t count = count_multiply_adds([&] {
    unet->forward(torch::zeros({1, 4, 32, 32}), torch::zeros({1}), torch::zeros({1, 77, 1024}));
  });
  EXPECT_NEAR(static_cast<double>(count) / 1e9, 90.6, 0.1);
}

TEST(multiply_adds, counts_do_not_nest) {
  EXPECT_THROW(count_multiply_adds([] { count_multiply_adds([] {}); }), CheckFailure);
  EXPECT_EQ(count_multiply_adds([] {}), 0) << "after a failure counting works again";
}

}  // namespace
}  // namespace darkroom
