#include "checks.h"
#include "darkroom/ops/geglu.h"
#include "darkroom/ops/group_norm.h"
#include "darkroom/ops/group_norm_silu.h"

namespace darkroom::plugin_checks {
namespace {

// Relative to the norm: float32 sums in another order and a rounding a value; bfloat16 rounds each result once (2^-9 of it on average),
// float16, too (2^-12), and ATen's reference in double rounds none.
constexpr double kFloat32Bound = 1e-5;
constexpr double kFloat16Bound = 0x1p-11;
constexpr double kBFloat16Bound = 0x1p-8;
constexpr torch::ScalarType kTypes[] = {torch::kFloat32, torch::kFloat16, torch::kBFloat16};

double bound_of(torch::ScalarType type) {
  return type == torch::kFloat32 ? kFloat32Bound : type == torch::kFloat16 ? kFloat16Bound : kBFloat16Bound;
}

struct NormCase {
  std::vector<int64_t> shape;
  int64_t groups;
};

// Sizes of the networks, and hostile ones: one pixel, one channel a group, odd numbers, more channels than a block has threads.
std::vector<NormCase> norm_cases() {
  return {{{2, 320, 32, 32}, 32}, {{1, 2560, 8, 8}, 32},  {{3, 12, 5, 7}, 4},    {{1, 8, 1, 1}, 1}, {{2, 7, 13, 1}, 7},
          {{2, 513, 3, 3}, 3},    {{1, 1024, 17, 17}, 1}, {{2, 64, 67, 61}, 16}, {{2, 32, 50}, 8},  {{0, 8, 4, 4}, 2}};
}

using NormFunction = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&, int64_t, double);

struct NormRun {
  torch::Tensor value, grad_x, grad_weight, grad_bias;
};

// The same numbers in another place and type.
NormRun run_norm(NormFunction norm, const NormCase& one, const std::vector<torch::Tensor>& leaves, const torch::TensorOptions& options) {
  const auto leaf = [&](const torch::Tensor& tensor) {
    const auto placed = tensor.to(options);
    const bool is_picture = placed.dim() == 4 && !placed.device().is_cpu();
    return (is_picture ? placed.contiguous(at::MemoryFormat::ChannelsLast) : placed).detach().requires_grad_();
  };
  const auto x = leaf(leaves[0]), weight = leaf(leaves[1]), bias = leaf(leaves[2]);
  const auto value = norm(x, weight, bias, one.groups, 1e-5);
  value.backward(leaves[3].to(options));
  return {value.detach(), x.grad(), weight.grad(), bias.grad()};
}

void check_norm(Findings& findings, const torch::Device& device, NormFunction norm) {
  for (const NormCase& one : norm_cases()) {
    for (const auto type : kTypes) {
      // Rounded to the type first, so that both sides see the same numbers; a mean of 3 as features have.
      std::vector<torch::Tensor> leaves = {torch::randn(one.shape) * 2 + 3, torch::randn({one.shape[1]}), torch::randn({one.shape[1]}),
                                           torch::randn(one.shape)};
      for (torch::Tensor& tensor : leaves) {
        tensor = tensor.to(type).to(torch::kFloat64);
      }
      const NormRun want = run_norm(norm, one, leaves, torch::dtype(torch::kFloat64));
      const NormRun got = run_norm(norm, one, leaves, torch::dtype(type).device(device));
      const std::string name = c10::str(c10::toString(type), " ", one.shape);
      findings.close(name + " value", got.value, want.value, bound_of(type));
      findings.close(name + " gradient of x", got.grad_x, want.grad_x, 4 * bound_of(type));
      findings.close(name + " gradient of weight", got.grad_weight, want.grad_weight, 4 * bound_of(type));
      findings.close(name + " gradient of bias", got.grad_bias, want.grad_bias, 4 * bound_of(type));
      findings.holds(name + ": a picture stays channels-last",
                     one.shape.size() != 4 || got.value.numel() == 0 || got.value.is_contiguous(at::MemoryFormat::ChannelsLast));
      const NormRun again = run_norm(norm, one, leaves, torch::dtype(type).device(device));
      findings.same_bits(name + " again, gradient of x", again.grad_x, got.grad_x);
      findings.same_bits(name + " again, gradient of weight", again.grad_weight, got.grad_weight);
    }
  }
}

void check_norm_of_large_mean(Findings& findings, const torch::Device& device) {
  const auto x = torch::randn({2, 16, 32, 32}) + 1000, ones = torch::ones({16}), zeros = torch::zeros({16});
  const auto got = group_norm(x.to(device), ones.to(device), zeros.to(device), 4, 1e-5);
  // The mean is kept in float32: off by up to 2^-15, and so is every value, of deviation 1.
  findings.close("mean 1000", got, group_norm(x.to(torch::kFloat64), ones.to(torch::kFloat64), zeros.to(torch::kFloat64), 4, 1e-5),
                 0x1p-12);
}

void check_norm_of_plain_layout(Findings& findings, const torch::Device& device) {
  const auto x = torch::randn({2, 24, 9, 11}), weight = torch::randn({24}), bias = torch::randn({24});
  const auto got = group_norm_silu(x.to(device), weight.to(device), bias.to(device), 6, 1e-5);
  findings.close("channels first", got, group_norm_silu(x, weight, bias, 6, 1e-5), kFloat32Bound);
  const auto misplaced = torch::randn({25}).narrow(0, 1, 24);  // Not at a multiple of 16 bytes.
  const auto placed = misplaced.to(device);
  findings.close("misplaced weight", group_norm(x.to(device), torch::cat({placed, placed}).narrow(0, 1, 24), bias.to(device), 6, 1e-5),
                 group_norm(x, torch::cat({misplaced, misplaced}).narrow(0, 1, 24), bias, 6, 1e-5), kFloat32Bound);
}

void check_geglu(Findings& findings, const torch::Device& device) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 77, 2560}, {3, 5, 14}, {1, 2}, {7, 2 * 65}, {4, 2 * 8}, {0, 8}}) {
    for (const auto type : kTypes) {
      const auto numbers = (torch::randn(shape) * 2).to(type);
      std::vector<int64_t> half = shape;
      half.back() /= 2;
      const auto cotangent = torch::randn(half).to(type);
      const auto x = numbers.to(torch::kFloat64).requires_grad_(), on_gpu = numbers.to(device).requires_grad_();
      const auto want = geglu(x), got = geglu(on_gpu);
      want.backward(cotangent.to(torch::kFloat64));
      got.backward(cotangent.to(device));
      const std::string name = c10::str(c10::toString(type), " ", shape);
      findings.close(name + " value", got.detach(), want.detach(), bound_of(type));
      findings.close(name + " gradient", on_gpu.grad(), x.grad(), bound_of(type));
    }
  }
}

}  // namespace

std::vector<Check> network_checks() {
  return {{"kernel: group_norm equals the reference in double", [](Findings& f, const torch::Device& d) { check_norm(f, d, group_norm); }},
          {"kernel: group_norm_silu equals the reference in double",
           [](Findings& f, const torch::Device& d) { check_norm(f, d, group_norm_silu); }},
          {"kernel: group_norm bears a large mean", check_norm_of_large_mean},
          {"kernel: group_norm takes any layout and place", check_norm_of_plain_layout},
          {"kernel: geglu equals the reference in double", check_geglu}};
}

}  // namespace darkroom::plugin_checks
