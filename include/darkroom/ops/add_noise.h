#pragma once

#include <torch/torch.h>

#include <utility>

namespace darkroom {

// clean and noise: float32 [N, ...] of one shape. scales_n2: float32 [N, 2], a sample's factors a of the clean latent and s of the noise
// (sqrt(abar) and sqrt(1 - abar), Ho et al. 2020), on the same device, so that a captured graph can be replayed with others. Nothing
// waits for the device, and no gradient is recorded. A fused kernel moves 12 bytes an element, 16 with the velocity.
// Thread safety: any thread.

/// a * clean + s * noise.
torch::Tensor add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& scales_n2);

/// The same, and the velocity a * noise - s * clean (Salimans and Ho 2022, arXiv 2202.00512), in one pass.
std::pair<torch::Tensor, torch::Tensor> add_noise_with_velocity(const torch::Tensor& clean, const torch::Tensor& noise,
                                                                const torch::Tensor& scales_n2);

}  // namespace darkroom
