#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// The noise levels sigma = sqrt((1 - abar) / abar) that a run passes, and the network's timestep at each.
struct SigmaPath {
  std::vector<double> timesteps;  ///< One a network call.
  std::vector<float> sigmas;      ///< One more: sigmas[i + 1] is the level after call i.
};

/// The path of diffusers' Euler samplers: linspace and Karras timesteps are fractions. With `karras`, sigmas lie between the
/// largest and the least of the spaced ones (Karras et al. 2022, formula 5, rho = 7).
SigmaPath euler_path(const SchedulerConfig& config, int64_t num_steps, bool karras, FinalSigma final_sigma);

/// Which sigma a Karras path of a multistep solver ends at when the config says sigma_min.
enum class KarrasEnd {
  kTableMinimum,  ///< Of the training schedule, in float32 (DPM-Solver++).
  kLastSigma,     ///< The path's last one, kept in double until the end (UniPC).
};

/// The path of diffusers' DPM-Solver++ and UniPC: n + 1 spaced timesteps without the lowest, rounded. With `karras`, sigmas span
/// the whole training schedule and timesteps are rounded.
/// Errors: kInvalidArgument when sigmas do not fall from call to call (too many steps).
Result<SigmaPath> multistep_path(const SchedulerConfig& config, int64_t num_steps, bool karras, KarrasEnd karras_end);

/// The variance-preserving view of a path's levels, float32 (n + 1) each: alpha = 1 / sqrt(sigma^2 + 1), noise = sigma * alpha,
/// log_ratio = ln alpha - ln noise (half the log-SNR, lambda of Lu et al. 2022).
struct VarianceLevels {
  torch::Tensor alpha;
  torch::Tensor noise;
  torch::Tensor log_ratio;

  explicit VarianceLevels(const std::vector<float>& sigmas);
};

/// The values of a float32 tensor (K).
std::vector<float> to_floats(const torch::Tensor& values);

}  // namespace darkroom
