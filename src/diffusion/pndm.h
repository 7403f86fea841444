#pragma once

#include <memory>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// PNDM (Liu et al. 2022, formula 9 and algorithm 2), with Runge-Kutta start or, with skip_prk_steps, plain multistep (PLMS).
Result<std::unique_ptr<Sampler>> make_pndm_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

}  // namespace darkroom
