#include <c10/cuda/CUDAGuard.h>

#include "cuda_operations.h"
#include "darkroom/core/check.h"
#include "kernel_arguments.h"

namespace darkroom::cuda {

ForwardResult geglu(const torch::Tensor& x_any) {
  if (!has_kernels(x_any.scalar_type())) {
    return fallback().geglu(x_any);
  }
  DARKROOM_CHECK(x_any.dim() >= 1 && x_any.size(-1) % 2 == 0,
                 "a gated unit's last dimension holds values and gates (size):", x_any.size(-1));
  const c10::cuda::CUDAGuard guard(x_any.device());
  const torch::Tensor x = aligned(x_any.contiguous());
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() /= 2;
  torch::Tensor y = torch::empty(shape, x.options());
  if (y.numel() > 0) {
    C10_CUDA_CHECK(launch_geglu(element_of(x), x.const_data_ptr(), y.data_ptr(), y.numel() / shape.back(), shape.back(), stream_of(x)));
  }
  return {y, {x}};
}

torch::Tensor geglu_backward(const torch::Tensor& grad_any, const std::vector<torch::Tensor>& saved) {
  const torch::Tensor& x = saved[0];
  if (!has_kernels(x.scalar_type())) {
    return fallback().geglu_backward(grad_any, saved);
  }
  const c10::cuda::CUDAGuard guard(x.device());
  const torch::Tensor grad = aligned(grad_any.to(x.scalar_type()).contiguous());
  torch::Tensor grad_x = torch::empty_like(x);
  if (grad.numel() > 0) {
    const int64_t width = grad.size(-1);
    C10_CUDA_CHECK(launch_geglu_backward(element_of(x), grad.const_data_ptr(), x.const_data_ptr(), grad_x.data_ptr(), grad.numel() / width,
                                         width, stream_of(x)));
  }
  return grad_x;
}

}  // namespace darkroom::cuda
