#pragma once

#include <memory>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// Euler's method on the probability-flow ODE (Karras et al. 2022, algorithm 2 without churn).
Result<std::unique_ptr<Sampler>> make_euler_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

/// Euler steps to a lower level than the path's, then fresh noise back up to it (ancestral sampling, Song et al. 2021 B).
Result<std::unique_ptr<Sampler>> make_euler_ancestral_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

}  // namespace darkroom
