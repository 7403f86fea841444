#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "plugin/checks.h"

namespace darkroom::plugin_checks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kBFloat16Bound = 0x1p-8;

std::vector<std::string> complaints_of_close(const torch::Tensor& got, const torch::Tensor& want, double bound = 0) {
  Findings findings;
  findings.close("it", got, want, bound);
  return findings.complaints();
}

std::vector<std::string> complaints_of_same_bits(const torch::Tensor& got, const torch::Tensor& want) {
  Findings findings;
  findings.same_bits("it", got, want);
  return findings.complaints();
}

// So many that the norm of all hides what happened to one.
torch::Tensor many_numbers() {
  torch::manual_seed(1);
  return torch::randn({1024, 1024}, torch::kFloat64);
}

TEST(PluginChecks, rounding_is_close) {
  const torch::Tensor want = many_numbers();
  EXPECT_THAT(complaints_of_close(want, want), IsEmpty());
  EXPECT_THAT(complaints_of_close(want.to(torch::kFloat32), want, 0x1p-24), IsEmpty());
  EXPECT_THAT(complaints_of_close(want.to(torch::kFloat16), want, 0x1p-11), IsEmpty());
  EXPECT_THAT(complaints_of_close(want.to(torch::kBFloat16), want, kBFloat16Bound), IsEmpty());
  for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {1}, {0, 4}}) {
    EXPECT_THAT(complaints_of_close(torch::zeros(shape), torch::zeros(shape)), IsEmpty());
  }
}

TEST(PluginChecks, one_element_of_garbage_among_many_is_found) {
  const torch::Tensor want = many_numbers();
  const double lost = want.view({-1})[12345].item<double>();
  for (const double garbage : {0.0, -lost, lost + 0.05, lost - 0.05, std::numeric_limits<double>::quiet_NaN()}) {
    torch::Tensor got = want.clone();
    got.view({-1})[12345] = garbage;
    EXPECT_THAT(complaints_of_close(got, want, kBFloat16Bound), ElementsAre(HasSubstr("it: "))) << garbage;
  }
}

TEST(PluginChecks, many_small_errors_are_found_by_the_norm) {
  const torch::Tensor want = many_numbers();
  EXPECT_THAT(complaints_of_close(want * (1 + 1.5 * kBFloat16Bound), want, kBFloat16Bound), ElementsAre(HasSubstr("of the norm")));
}

TEST(PluginChecks, bits_are_compared_as_bits) {
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16}) {
    const torch::Tensor zero = torch::zeros({}, type), nan = torch::full({3}, std::numeric_limits<double>::quiet_NaN(), type);
    EXPECT_THAT(complaints_of_same_bits(zero, zero.clone()), IsEmpty());
    EXPECT_THAT(complaints_of_same_bits(-zero, zero), ElementsAre(HasSubstr("other bits"))) << type;
    EXPECT_THAT(complaints_of_same_bits(nan, nan.clone()), IsEmpty()) << type;
  }
  const torch::Tensor counted = torch::arange(24, torch::kInt64).view({2, 3, 2, 2});
  EXPECT_THAT(complaints_of_same_bits(counted.contiguous(at::MemoryFormat::ChannelsLast), counted), IsEmpty()) << "a layout is no value";
  EXPECT_THAT(complaints_of_same_bits(counted + 1, counted), ElementsAre(HasSubstr("difference 1")));
  EXPECT_THAT(complaints_of_same_bits(counted.view({-1}), counted), ElementsAre(HasSubstr("other shape")));
  EXPECT_THAT(complaints_of_same_bits(counted.to(torch::kInt32), counted), ElementsAre(HasSubstr("other type")));
  EXPECT_THAT(complaints_of_same_bits(torch::zeros({0, 4}), torch::zeros({0, 4})), IsEmpty());
}

}  // namespace
}  // namespace darkroom::plugin_checks
