#pragma once

#include <memory>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// DPM-Solver++(2M), midpoint form (Lu et al. 2022, arXiv 2211.01095, algorithm 2), over the spaced sigmas.
Result<std::unique_ptr<Sampler>> make_dpmpp_2m_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

/// The same over Karras sigmas.
Result<std::unique_ptr<Sampler>> make_dpmpp_2m_karras_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

}  // namespace darkroom
