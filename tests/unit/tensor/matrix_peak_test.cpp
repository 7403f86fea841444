#include "darkroom/tensor/matrix_peak.h"

#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

TEST(MatrixPeakTest, counts_two_operations_for_each_product_of_numbers) {
  // 1000^3 products of numbers and as many sums in two milliseconds: 10^12 a second.
  EXPECT_DOUBLE_EQ((MatrixPeak{.side = 1000, .best_ms = 2}.tflops()), 1.0);
  // 2 * 8192^3 = 1.0995e12 operations; an H100's 989e12 a second would do them in 1.1117 ms.
  EXPECT_NEAR((MatrixPeak{.side = 8192, .best_ms = 1.1117}.tflops()), 989, 0.1);
  EXPECT_EQ(MatrixPeak{}.tflops(), 0);
}

TEST(MatrixPeakTest, is_measured_in_the_type_and_draws_nothing_from_torchs_generator) {
  at::set_num_threads(1);
  torch::manual_seed(5);
  const torch::Tensor next = torch::rand({4});
  torch::manual_seed(5);
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    const MatrixPeak peak = measure_matrix_peak(torch::kCPU, type);
    EXPECT_TRUE(peak.side % 512 == 0 && peak.side >= 512 && peak.side <= 8192) << peak.side;
    EXPECT_TRUE(std::isfinite(peak.best_ms) && peak.best_ms > 0) << peak.best_ms;
    EXPECT_GT(peak.tflops(), 0);
  }
  EXPECT_TRUE(torch::equal(torch::rand({4}), next));
  EXPECT_THROW(time_products(torch::kCPU, torch::kFloat32, 700, 1), CheckFailure);
}

}  // namespace
}  // namespace darkroom
