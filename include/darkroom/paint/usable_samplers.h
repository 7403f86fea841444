#pragma once

#include <string>
#include <vector>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// Whether a sampler can be made for a model's scheduler, tried with a number of steps that samplers usually take. Empty: the scheduler's
/// own. Errors: make_sampler's.
Status try_sampler(const std::string& name, const SchedulerConfig& scheduler);

/// The names of those that can, in the order of sampler_names().
std::vector<std::string> usable_samplers(const SchedulerConfig& scheduler);

}  // namespace darkroom
