#include <c10/cuda/CUDAGuard.h>

#include "cuda_operations.h"
#include "darkroom/core/check.h"
#include "kernel_arguments.h"

namespace darkroom::cuda {
namespace {

// The flat arrays of an update are changed in place, so a misplaced one cannot be copied.
template <typename Scalar>
Scalar* flat_pointer(const torch::Tensor& array) {
  if (!array.defined()) {
    return nullptr;
  }
  constexpr uintptr_t kAccessBytes = 16;
  DARKROOM_CHECK(reinterpret_cast<uintptr_t>(array.const_data_ptr()) % kAccessBytes == 0, "a flat array starts at a multiple of 16 bytes");
  return static_cast<Scalar*>(array.data_ptr());
}

}  // namespace

void add_noise(const torch::Tensor& clean_any, const torch::Tensor& noise_any, const torch::Tensor& scales_any, torch::Tensor& noisy,
               torch::Tensor* velocity) {
  if (clean_any.scalar_type() != torch::kFloat32 || noise_any.scalar_type() != torch::kFloat32 ||
      scales_any.scalar_type() != torch::kFloat32) {
    fallback().add_noise(clean_any, noise_any, scales_any, noisy, velocity);
    return;
  }
  const c10::cuda::CUDAGuard guard(clean_any.device());
  const torch::Tensor clean = clean_any.contiguous(), noise = noise_any.contiguous(), scales_n2 = scales_any.contiguous();
  noisy = torch::empty_like(clean);
  if (velocity != nullptr) {
    *velocity = torch::empty_like(clean);
  }
  if (clean.numel() > 0) {
    const int64_t num_samples = clean.size(0);
    C10_CUDA_CHECK(launch_add_noise(clean.const_data_ptr<float>(), noise.const_data_ptr<float>(), scales_n2.const_data_ptr<float>(),
                                    noisy.data_ptr<float>(), velocity != nullptr ? velocity->data_ptr<float>() : nullptr, num_samples,
                                    clean.numel() / num_samples, stream_of(clean)));
  }
}

void counter_normal(torch::Tensor& out, uint64_t seed, uint8_t purpose, const torch::Tensor& coordinates_n2) {
  const c10::cuda::CUDAGuard guard(out.device());
  const int64_t num_samples = out.size(0);
  C10_CUDA_CHECK(launch_counter_normal(out.data_ptr<float>(), seed, purpose, coordinates_n2.const_data_ptr<int64_t>(), num_samples,
                                       out.numel() / num_samples, stream_of(out)));
}

torch::Tensor norm_partials(const torch::Tensor& flat_any) {
  const c10::cuda::CUDAGuard guard(flat_any.device());
  const torch::Tensor flat = aligned(flat_any);
  torch::Tensor partials = torch::empty({norm_chunks(flat.numel())}, flat.options().dtype(torch::kFloat64));
  if (flat.numel() > 0) {
    C10_CUDA_CHECK(
        launch_norm_partials(element_of(flat), flat.const_data_ptr(), flat.numel(), partials.data_ptr<double>(), stream_of(flat)));
  }
  return partials;
}

torch::Tensor add_norm_partials(const torch::Tensor& partials) {
  const c10::cuda::CUDAGuard guard(partials.device());
  torch::Tensor sum = torch::empty({1}, partials.options());
  C10_CUDA_CHECK(launch_add_partials(partials.const_data_ptr<double>(), partials.numel(), sum.data_ptr<double>(), stream_of(partials)));
  return sum;
}

void clip_scale(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars) {
  const c10::cuda::CUDAGuard guard(scalars.device());
  C10_CUDA_CHECK(launch_clip_scale(squared_norm.const_data_ptr<double>(), losses.const_data_ptr<float>(), losses.numel(),
                                   scalars.data_ptr<double>(), stream_of(scalars)));
}

void adamw_update(const AdamWArrays& arrays, const torch::Tensor& scalars) {
  const c10::cuda::CUDAGuard guard(arrays.weights.device());
  const AdamWPointers pointers = {.weights = flat_pointer<float>(arrays.weights),
                                  .gradients = flat_pointer<void>(arrays.gradients),
                                  .first_moment = flat_pointer<float>(arrays.first_moment),
                                  .second_moment = flat_pointer<float>(arrays.second_moment),
                                  .ema = flat_pointer<float>(arrays.ema),
                                  .compute = flat_pointer<void>(arrays.compute)};
  C10_CUDA_CHECK(launch_adamw_update(element_of(arrays.gradients), pointers, scalars.const_data_ptr<double>(), arrays.weights.numel(),
                                     stream_of(scalars)));
}

}  // namespace darkroom::cuda
