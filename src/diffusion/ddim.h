#pragma once

#include <memory>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// DDIM (Song et al. 2021, formula 12).
Result<std::unique_ptr<Sampler>> make_ddim_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

}  // namespace darkroom
