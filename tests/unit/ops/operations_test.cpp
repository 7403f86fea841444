#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "darkroom/ops/geglu.h"
#include "darkroom/ops/group_norm.h"
#include "darkroom/ops/group_norm_silu.h"
#include "darkroom/ops/operation_table.h"
#include "support/tensor_error.h"

namespace darkroom {
namespace {

// The definition, element by element in double.
torch::Tensor group_norm_silu_by_hand(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t groups,
                                      double eps) {
  const auto grouped = x.to(torch::kFloat64).reshape({x.size(0), groups, -1});
  const auto mean = grouped.mean(2, true);
  const auto variance = (grouped - mean).square().mean(2, true);
  const auto normed = ((grouped - mean) / (variance + eps).sqrt()).reshape(x.sizes());
  const auto scaled = normed * weight.to(torch::kFloat64).view({1, -1, 1}) + bias.to(torch::kFloat64).view({1, -1, 1});
  return scaled / (1 + (-scaled).exp());
}

TEST(GroupNormSiluTest, equals_the_definition_on_odd_sizes) {
  torch::manual_seed(1);
  for (const int64_t pixels : {1, 7, 64, 65}) {
    const auto x = torch::randn({3, 12, pixels}) * 3 + 1;
    const auto weight = torch::randn({12}), bias = torch::randn({12});
    const auto got = group_norm_silu(x, weight, bias, 4, 1e-5);
    const auto want = group_norm_silu_by_hand(x, weight, bias, 4, 1e-5);
    EXPECT_TRUE(is_near(got, want, 1e-5 + 1e-4 * want.abs())) << pixels;
  }
}

TEST(GroupNormSiluTest, leaves_its_input_alone_with_and_without_gradients) {
  const auto x = torch::randn({2, 4, 9});
  const auto copy = x.clone();
  const auto weight = torch::ones({4}, torch::requires_grad()), bias = torch::zeros({4}, torch::requires_grad());
  const auto with = group_norm_silu(x, weight, bias, 2, 1e-5);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(group_norm_silu(x, weight, bias, 2, 1e-5), with));
  EXPECT_TRUE(at::equal(x, copy));
}

// |got - want| over the largest |want| of a gradient, in units of float32's epsilon: at most this many a term of the longest sum
// behind it. Products of normalised values stay within a few times the largest one, which the factor covers.
constexpr double kEpsilonsATerm = 4;

void expect_close(const torch::Tensor& got, const torch::Tensor& want, int64_t num_terms) {
  const double bound = kEpsilonsATerm * std::sqrt(static_cast<double>(num_terms)) * 4 * std::numeric_limits<float>::epsilon();
  EXPECT_TRUE(is_near(got, want, bound * largest(want)));
}

torch::Tensor in_double(const torch::Tensor& x) { return x.detach().to(torch::kFloat64).requires_grad_(); }

TEST(GroupNormSiluTest, gradients_equal_those_of_the_definition_in_double) {
  torch::manual_seed(4);
  for (const int64_t pixels : {1, 7, 64, 65}) {
    const auto x = (torch::randn({3, 12, pixels}) * 3 + 1).requires_grad_();
    const auto weight = torch::randn({12}).requires_grad_(), bias = torch::randn({12}).requires_grad_();
    const auto cotangent = torch::randn({3, 12, pixels});
    group_norm_silu(x, weight, bias, 4, 1e-5).backward(cotangent);
    const auto x_double = in_double(x), weight_double = in_double(weight), bias_double = in_double(bias);
    group_norm_silu_by_hand(x_double, weight_double, bias_double, 4, 1e-5).backward(cotangent.to(torch::kFloat64));
    expect_close(x.grad(), x_double.grad(), 3 * pixels);
    expect_close(weight.grad(), weight_double.grad(), 3 * pixels);
    expect_close(bias.grad(), bias_double.grad(), 3 * pixels);
  }
}

TEST(GroupNormSiluTest, gradient_equals_finite_differences) {
  torch::manual_seed(2);
  const auto options = torch::dtype(torch::kFloat64);
  auto x = torch::randn({2, 4, 3}, options).requires_grad_(), weight = torch::randn({4}, options).requires_grad_(),
       bias = torch::randn({4}, options).requires_grad_();
  const auto cotangent = torch::randn({2, 4, 3}, options);
  group_norm_silu(x, weight, bias, 2, 1e-5).backward(cotangent);
  const torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (auto& leaf : {x, weight, bias}) {
    auto flat = leaf.view(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double value = flat[i].item<double>();
      flat[i] = value + kStep;
      const double above = (group_norm_silu(x, weight, bias, 2, 1e-5) * cotangent).sum().item<double>();
      flat[i] = value - kStep;
      const double below = (group_norm_silu(x, weight, bias, 2, 1e-5) * cotangent).sum().item<double>();
      flat[i] = value;
      EXPECT_TRUE(is_near(leaf.grad().view(-1)[i].item<double>(), (above - below) / (2 * kStep), 1e-6));
    }
  }
}

TEST(GegluTest, gates_the_first_half_by_the_exact_gelu_of_the_second) {
  torch::manual_seed(3);
  const auto x = torch::randn({3, 5, 14});
  const auto got = geglu(x);
  ASSERT_EQ(got.sizes().vec(), (std::vector<int64_t>{3, 5, 7}));
  for (int64_t row = 0; row < 15; ++row) {
    for (int64_t i = 0; i < 7; ++i) {
      const double value = x.view({15, 14})[row][i].item<double>(), gate = x.view({15, 14})[row][i + 7].item<double>();
      const double want = value * gate * 0.5 * (1 + std::erf(gate / std::sqrt(2.0)));
      // Four roundings (of the argument, the erf, two products), each of at most |value * gate|.
      EXPECT_TRUE(is_near(got.view({15, 7})[row][i].item<double>(), want, accumulation_tolerance<float>(4, std::abs(value * gate))));
    }
  }
}

// The definition: value * gate * Phi(gate).
torch::Tensor geglu_by_hand(const torch::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return halves[0] * halves[1] * 0.5 * (1 + at::erf(halves[1] * std::sqrt(0.5)));
}

TEST(GegluTest, values_and_gradients_equal_those_of_the_definition_in_double) {
  torch::manual_seed(5);
  for (const int64_t width : {1, 3, 64, 65}) {
    const auto x = (torch::randn({3, 5, 2 * width}) * 2).requires_grad_();
    const auto cotangent = torch::randn({3, 5, width});
    const auto got = geglu(x);
    got.backward(cotangent);
    const auto x_double = in_double(x);
    const auto want = geglu_by_hand(x_double);
    want.backward(cotangent.to(torch::kFloat64));
    expect_close(got.detach(), want.detach(), 1);
    expect_close(x.grad(), x_double.grad(), 1);
  }
}

TEST(GegluTest, takes_no_rows_and_leaves_its_input_alone) {
  EXPECT_EQ(geglu(torch::empty({0, 5, 8})).sizes().vec(), (std::vector<int64_t>{0, 5, 4}));
  const auto x = torch::randn({2, 6});
  const auto copy = x.clone();
  geglu(x);
  EXPECT_TRUE(at::equal(x, copy));
}

TEST(OperationTableTest, serves_the_reference_until_another_table_is_installed) {
  const auto device = torch::DeviceType::Meta;  // No network runs there, so other tests are not disturbed.
  EXPECT_EQ(operations_for(device).geglu, reference_operations().geglu);
  OperationTable table = reference_operations();
  table.geglu = [](const torch::Tensor& x) { return ForwardResult{x, {}}; };
  install_operations(device, table);
  const auto x = torch::empty({2, 4}, torch::device(torch::kMeta));
  EXPECT_EQ(geglu(x).size(1), 4);
  install_operations(device, reference_operations());
  EXPECT_EQ(geglu(x).size(1), 2);
}

TEST(OperationTableTest, a_table_replaces_forward_and_backward) {
  const auto device = torch::DeviceType::Meta;
  OperationTable table = reference_operations();
  table.geglu = [](const torch::Tensor& x) { return ForwardResult{x.narrow(-1, 0, 1).clone(), {x}}; };
  static bool was_asked;
  was_asked = false;
  table.geglu_backward = [](const torch::Tensor&, const std::vector<torch::Tensor>& saved) {
    was_asked = true;
    return torch::empty_like(saved.at(0));
  };
  install_operations(device, table);
  const auto x = torch::empty({2, 4}, torch::device(torch::kMeta).requires_grad(true));
  geglu(x).backward(torch::empty({2, 1}, torch::device(torch::kMeta)));
  install_operations(device, reference_operations());
  EXPECT_TRUE(was_asked);
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(OperationTableTest, an_empty_entry_is_a_bug) {
  OperationTable table = reference_operations();
  table.norm_partials = nullptr;
  EXPECT_THROW(install_operations(torch::DeviceType::Meta, table), CheckFailure);
}

// The entries' references keep the bits that ATen's own autograd gives: the CPU's numbers are those of the unfused network.
struct Gradients {
  torch::Tensor value, x, weight, bias;
};

template <typename Operation>
Gradients run_with_gradients(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const Operation& operation) {
  const auto leaf = [](const torch::Tensor& tensor) { return tensor.detach().clone(at::MemoryFormat::Preserve).requires_grad_(); };
  const torch::Tensor x_leaf = leaf(x), weight_leaf = leaf(weight), bias_leaf = leaf(bias);
  const torch::Tensor value = operation(x_leaf, weight_leaf, bias_leaf);
  torch::manual_seed(9);
  value.backward(torch::randn(value.sizes(), value.options()));
  return {value.detach(), x_leaf.grad(), weight_leaf.grad(), bias_leaf.grad()};
}

void expect_same_bits(const Gradients& got, const Gradients& want) {
  EXPECT_TRUE(torch::equal(got.value, want.value));
  EXPECT_EQ(got.value.strides(), want.value.strides());
  EXPECT_TRUE(torch::equal(got.x, want.x));
  EXPECT_TRUE(torch::equal(got.weight, want.weight));
  EXPECT_TRUE(torch::equal(got.bias, want.bias));
}

TEST(ReferenceTest, group_norms_have_the_bits_of_atens_autograd_in_every_layout_and_type) {
  torch::manual_seed(8);
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const auto weight = torch::randn({12}).to(type), bias = torch::randn({12}).to(type);
    const auto plain = torch::randn({2, 12, 5, 7}).to(type);
    for (const auto& x : {plain, plain.contiguous(at::MemoryFormat::ChannelsLast), plain.transpose(2, 3), plain.flatten(2)}) {
      expect_same_bits(
          run_with_gradients(x, weight, bias, [](const auto& x, const auto& w, const auto& b) { return group_norm(x, w, b, 4, 1e-6); }),
          run_with_gradients(x, weight, bias,
                             [](const auto& x, const auto& w, const auto& b) { return at::group_norm(x, 4, w, b, 1e-6); }));
      expect_same_bits(run_with_gradients(x, weight, bias,
                                          [](const auto& x, const auto& w, const auto& b) { return group_norm_silu(x, w, b, 4, 1e-6); }),
                       run_with_gradients(x, weight, bias, [](const auto& x, const auto& w, const auto& b) {
                         return at::silu(at::group_norm(x, 4, w, b, 1e-6));
                       }));
    }
  }
}

TEST(ReferenceTest, geglu_has_the_bits_of_atens_autograd) {
  torch::manual_seed(8);
  const auto by_aten = [](const torch::Tensor& x) {
    const auto halves = x.chunk(2, -1);
    return halves[0] * at::gelu(halves[1]);
  };
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    const auto x = torch::randn({3, 5, 34}).to(type).requires_grad_(), same = x.detach().clone().requires_grad_();
    const auto cotangent = torch::randn({3, 5, 17}).to(type);
    const auto got = geglu(x), want = by_aten(same);
    EXPECT_TRUE(torch::equal(got, want));
    got.backward(cotangent);
    want.backward(cotangent);
    EXPECT_TRUE(torch::equal(x.grad(), same.grad()));
  }
}

TEST(GroupNormTest, only_wanted_gradients_are_there) {
  const auto x = torch::randn({2, 4, 6}, torch::requires_grad());
  const auto weight = torch::ones({4}), bias = torch::zeros({4}, torch::requires_grad());
  group_norm(x, weight, bias, 2, 1e-5).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_TRUE(bias.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST(GroupNormTest, channels_that_do_not_fit_are_a_bug) {
  const auto x = torch::randn({2, 6, 3}), weight = torch::ones({6});
  EXPECT_THROW(group_norm(x, weight, weight, 4, 1e-5), CheckFailure);
  EXPECT_THROW(group_norm_silu(x, torch::ones({5}), weight, 3, 1e-5), CheckFailure);
}

}  // namespace
}  // namespace darkroom
