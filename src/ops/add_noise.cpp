#include "darkroom/ops/add_noise.h"

#include "darkroom/core/check.h"
#include "references.h"

namespace darkroom {
namespace {

void check_arguments(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& scales_n2) {
  DARKROOM_CHECK(clean.dim() >= 1 && clean.sizes() == noise.sizes(),
                 "latents and noise have one shape (latents, noise):", c10::str(clean.sizes()), c10::str(noise.sizes()));
  DARKROOM_CHECK(scales_n2.dim() == 2 && scales_n2.size(0) == clean.size(0) && scales_n2.size(1) == 2,
                 "every sample has two scales (samples, scales):", clean.size(0), c10::str(scales_n2.sizes()));
  DARKROOM_CHECK(clean.device() == noise.device() && clean.device() == scales_n2.device(), "latents, noise and scales are on one device");
}

}  // namespace

torch::Tensor add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& scales_n2) {
  const torch::NoGradGuard no_grad;
  check_arguments(clean, noise, scales_n2);
  torch::Tensor noisy;
  operations_for(clean.device().type()).add_noise(clean, noise, scales_n2, noisy, nullptr);
  return noisy;
}

std::pair<torch::Tensor, torch::Tensor> add_noise_with_velocity(const torch::Tensor& clean, const torch::Tensor& noise,
                                                                const torch::Tensor& scales_n2) {
  const torch::NoGradGuard no_grad;
  check_arguments(clean, noise, scales_n2);
  std::pair<torch::Tensor, torch::Tensor> result;
  operations_for(clean.device().type()).add_noise(clean, noise, scales_n2, result.first, &result.second);
  return result;
}

namespace reference {

void add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& scales_n2, torch::Tensor& noisy,
               torch::Tensor* velocity) {
  std::vector<int64_t> shape(static_cast<size_t>(clean.dim()), 1);
  shape[0] = clean.size(0);
  const torch::Tensor signal_scale = scales_n2.select(1, 0).reshape(shape), noise_scale = scales_n2.select(1, 1).reshape(shape);
  noisy = signal_scale * clean + noise_scale * noise;
  if (velocity != nullptr) {
    *velocity = signal_scale * noise - noise_scale * clean;
  }
}

}  // namespace reference
}  // namespace darkroom
