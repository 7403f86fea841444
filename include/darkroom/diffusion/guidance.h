#pragma once

#include <torch/torch.h>

#include <functional>

#include "darkroom/core/status.h"
#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// The conditional network: (noisy latents (N, C, h, w), timesteps (N), text states (N, T, W)) -> output (N, C, h, w).
using ConditionalDenoiser =
    std::function<torch::Tensor(const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw)>;

/// How strongly a text leads.
struct Guidance {
  double scale = 7.5;    ///< At most 1: none.
  double rescale = 0.0;  ///< Share in which the guided output gets the conditional one's deviation, 0 to 1 (Lin et al. 2023, section 3.4).

  /// Whether it costs a second, unconditional branch: a scale above 1, as in diffusers.
  bool is_active() const { return scale > 1.0; }
  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// What guidance makes of the outputs of the two branches, float32 (N, C, h, w) each: see guided_denoiser. REQUIRES: it is active.
torch::Tensor guided_output(const torch::Tensor& negative_nchw, const torch::Tensor& positive_nchw, const Guidance& guidance);

/// Classifier-free guidance (Ho and Salimans 2022): g = u + scale * (c - u), both branches in one call of the network in the
/// order [negative, positive]; with rescale r it becomes r * g * std(c) / std(g) + (1 - r) * g, deviations over each picture.
/// Inactive guidance does not use the negative states, which may be undefined. States are (N, T, W) for the N latents of a call. An output
/// in half precision becomes float32 before anything is computed of it.
Denoiser guided_denoiser(ConditionalDenoiser network, torch::Tensor negative_states_ntw, torch::Tensor positive_states_ntw,
                         const Guidance& guidance);

}  // namespace darkroom
