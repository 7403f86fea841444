#pragma once

#include <memory>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// Multistep sampling of latent consistency models (Luo et al. 2023, arXiv 2310.04378, algorithm 3).
Result<std::unique_ptr<Sampler>> make_lcm_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

}  // namespace darkroom
