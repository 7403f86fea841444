#pragma once

#include <memory>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// UniPC of order 2, B(h) = e^h - 1, predicting the clean latent (Zhao et al. 2023, arXiv 2302.04867, algorithms 1 and 2).
Result<std::unique_ptr<Sampler>> make_unipc_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

}  // namespace darkroom
