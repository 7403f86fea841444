#include <tuple>

#include "darkroom/core/check.h"
#include "references.h"

// The sequence of ATen operations, and the layouts that they get, are those of at::group_norm and its derivative, so that values and
// gradients have the bits of ATen's autograd.
namespace darkroom::reference {
namespace {

// The layout in which ATen's kernel for x's device takes its input.
torch::Tensor in_kernel_layout(const torch::Tensor& tensor, const torch::Tensor& x) {
  return tensor.contiguous(x.device().is_cpu() ? x.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

struct Normed {
  torch::Tensor value, mean, rstd;
};

Normed native_group_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         const GroupNormSettings& settings) {
  const int64_t num_samples = x.size(0), num_channels = x.size(1);
  DARKROOM_CHECK(num_channels % settings.num_groups == 0 && weight.numel() == num_channels && bias.numel() == num_channels,
                 "a group norm's groups, weight and bias fit its channels (groups, channels):", settings.num_groups, num_channels);
  const int64_t num_pixels = c10::multiply_integers(x.sizes().slice(2));
  const auto [value, mean, rstd] =
      at::native_group_norm(x, weight, bias, num_samples, num_channels, num_pixels, settings.num_groups, settings.eps);
  return {value, mean, rstd};
}

std::array<torch::Tensor, 3> native_group_norm_backward(const torch::Tensor& grad, const torch::Tensor& x, const torch::Tensor& weight,
                                                        const torch::Tensor& mean, const torch::Tensor& rstd,
                                                        const GroupNormSettings& settings, std::array<bool, 3> wanted) {
  const int64_t num_pixels = c10::multiply_integers(x.sizes().slice(2));
  const auto [grad_x, grad_weight, grad_bias] = at::native_group_norm_backward(in_kernel_layout(grad, x), x, mean, rstd, weight, x.size(0),
                                                                               x.size(1), num_pixels, settings.num_groups, wanted);
  return {grad_x, grad_weight, grad_bias};
}

}  // namespace

ForwardResult group_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         const GroupNormSettings& settings) {
  const torch::Tensor input = in_kernel_layout(x, x);
  const Normed normed = native_group_norm(input, weight, bias, settings);
  return {normed.value, {input, weight, normed.mean, normed.rstd}};
}

std::array<torch::Tensor, 3> group_norm_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                 const GroupNormSettings& settings, std::array<bool, 3> wanted) {
  return native_group_norm_backward(grad, saved[0], saved[1], saved[2], saved[3], settings, wanted);
}

ForwardResult group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                              const GroupNormSettings& settings) {
  const torch::Tensor input = in_kernel_layout(x, x);
  Normed normed = native_group_norm(input, weight, bias, settings);
  if (!settings.for_gradient) {
    return {at::silu_(normed.value), {}};  // Nobody needs the normed values again: one buffer less.
  }
  return {at::silu(normed.value), {input, weight, normed.mean, normed.rstd, normed.value}};
}

std::array<torch::Tensor, 3> group_norm_silu_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                      const GroupNormSettings& settings, std::array<bool, 3> wanted) {
  const torch::Tensor grad_normed = at::silu_backward(grad, saved[4]);
  return native_group_norm_backward(grad_normed, saved[0], saved[1], saved[2], saved[3], settings, wanted);
}

}  // namespace darkroom::reference
