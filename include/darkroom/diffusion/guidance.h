#pragma once

#include <torch/torch.h>

#include <functional>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// The conditional network: (noisy latents (N, C, h, w), timesteps (N), text states (N, T, W)) -> output (N, C, h, w).
using ConditionalDenoiser =
    std::function<torch::Tensor(const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw)>;

/// Whether a guidance scale costs a second, unconditional branch: above 1, as in diffusers.
inline bool guidance_is_active(double guidance_scale) { return guidance_scale > 1.0; }

/// Classifier-free guidance (Ho and Salimans 2022): u + scale * (c - u), both branches in one call of the network in the
/// order [negative, positive]. With a scale of at most 1 the negative states are not used and may be undefined.
/// States are (N, T, W) for the N latents of a call.
Denoiser guided_denoiser(ConditionalDenoiser network, torch::Tensor negative_states_ntw, torch::Tensor positive_states_ntw,
                         double guidance_scale);

}  // namespace darkroom
