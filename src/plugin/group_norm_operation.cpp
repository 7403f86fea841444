#include <c10/cuda/CUDAGuard.h>

#include "cuda_operations.h"
#include "darkroom/core/check.h"
#include "kernel_arguments.h"

namespace darkroom::cuda {
namespace {

// The tensor with channels last in memory: [N, C, ...] of any number of dimensions, as the kernels read it.
torch::Tensor channels_last(const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.movedim(1, -1).contiguous().movedim(-1, 1);
  return aligned(dense);
}

GroupNormShape shape_of(const torch::Tensor& x, const GroupNormSettings& settings, bool with_silu) {
  const int64_t num_channels = x.size(1);
  DARKROOM_CHECK(num_channels % settings.num_groups == 0,
                 "a group norm's groups divide its channels (groups, channels):", settings.num_groups, num_channels);
  return {.element = element_of(x),
          .with_silu = with_silu,
          .num_samples = x.size(0),
          .num_pixels = c10::multiply_integers(x.sizes().slice(2)),
          .num_channels = num_channels,
          .num_groups = settings.num_groups,
          .eps = static_cast<float>(settings.eps)};
}

torch::Tensor partials_for(const GroupNormShape& shape, const torch::TensorOptions& floats) {
  return torch::empty({2, shape.num_samples, group_norm_chunks(shape), shape.num_channels}, floats);
}

// A weight or bias as the kernel takes it; of another type than x's it is converted.
torch::Tensor channel_values(const torch::Tensor& values, const torch::Tensor& x) {
  DARKROOM_CHECK(values.dim() == 1 && values.numel() == x.size(1),
                 "a group norm's weight and bias have one number a channel (channels):", x.size(1));
  return aligned(values.to(x.scalar_type()).contiguous());
}

ForwardResult run_forward(const torch::Tensor& x_any, const torch::Tensor& weight_any, const torch::Tensor& bias_any,
                          const GroupNormSettings& settings, bool with_silu) {
  const c10::cuda::CUDAGuard guard(x_any.device());
  const torch::Tensor x = channels_last(x_any), weight = channel_values(weight_any, x), bias = channel_values(bias_any, x);
  const GroupNormShape shape = shape_of(x, settings, with_silu);
  const auto floats = x.options().dtype(torch::kFloat32);
  torch::Tensor y = torch::empty_like(x), mean = torch::empty({shape.num_samples, shape.num_groups}, floats),
                rstd = torch::empty_like(mean);
  if (x.numel() > 0) {
    const torch::Tensor partials = partials_for(shape, floats), sums = torch::empty({2, shape.num_samples, shape.num_channels}, floats);
    const GroupNormArrays arrays = {.x = x.const_data_ptr(),
                                    .weight = weight.const_data_ptr(),
                                    .bias = bias.const_data_ptr(),
                                    .y = y.data_ptr(),
                                    .mean = mean.data_ptr<float>(),
                                    .rstd = rstd.data_ptr<float>(),
                                    .partials = partials.data_ptr<float>(),
                                    .sums = sums.data_ptr<float>()};
    C10_CUDA_CHECK(launch_group_norm(shape, arrays, stream_of(x)));
  }
  if (!settings.for_gradient) {
    return {y, {}};
  }
  return {y, {x, weight, bias, mean, rstd}};
}

std::array<torch::Tensor, 3> run_backward(const torch::Tensor& grad_any, const std::vector<torch::Tensor>& saved,
                                          const GroupNormSettings& settings, bool with_silu) {
  const torch::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3], &rstd = saved[4];
  const c10::cuda::CUDAGuard guard(x.device());
  const torch::Tensor grad = channels_last(grad_any.to(x.scalar_type()));
  const GroupNormShape shape = shape_of(x, settings, with_silu);
  torch::Tensor grad_x = torch::empty_like(x), grad_weight = torch::zeros_like(weight), grad_bias = torch::zeros_like(bias);
  if (x.numel() > 0) {
    const torch::Tensor partials = partials_for(shape, mean.options());
    const torch::Tensor sums = torch::empty({2, shape.num_samples, shape.num_channels}, mean.options());
    const torch::Tensor group_sums = torch::empty({2, shape.num_samples, shape.num_groups}, mean.options());
    const GroupNormGradientArrays arrays = {.grad_y = grad.const_data_ptr(),
                                            .x = x.const_data_ptr(),
                                            .weight = weight.const_data_ptr(),
                                            .bias = bias.const_data_ptr(),
                                            .mean = mean.const_data_ptr<float>(),
                                            .rstd = rstd.const_data_ptr<float>(),
                                            .grad_x = grad_x.data_ptr(),
                                            .grad_weight = grad_weight.data_ptr(),
                                            .grad_bias = grad_bias.data_ptr(),
                                            .partials = partials.data_ptr<float>(),
                                            .sums = sums.data_ptr<float>(),
                                            .group_sums = group_sums.data_ptr<float>()};
    C10_CUDA_CHECK(launch_group_norm_backward(shape, arrays, stream_of(x)));
  }
  return {grad_x, grad_weight, grad_bias};
}

}  // namespace

ForwardResult group_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         const GroupNormSettings& settings) {
  return has_kernels(x.scalar_type()) ? run_forward(x, weight, bias, settings, false) : fallback().group_norm(x, weight, bias, settings);
}

std::array<torch::Tensor, 3> group_norm_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                 const GroupNormSettings& settings, std::array<bool, 3> wanted) {
  return has_kernels(saved[0].scalar_type()) ? run_backward(grad, saved, settings, false)
                                             : fallback().group_norm_backward(grad, saved, settings, wanted);
}

ForwardResult group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                              const GroupNormSettings& settings) {
  return has_kernels(x.scalar_type()) ? run_forward(x, weight, bias, settings, true)
                                      : fallback().group_norm_silu(x, weight, bias, settings);
}

std::array<torch::Tensor, 3> group_norm_silu_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                      const GroupNormSettings& settings, std::array<bool, 3> wanted) {
  return has_kernels(saved[0].scalar_type()) ? run_backward(grad, saved, settings, true)
                                             : fallback().group_norm_silu_backward(grad, saved, settings, wanted);
}

}  // namespace darkroom::cuda
