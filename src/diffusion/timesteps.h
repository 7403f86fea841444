#pragma once

#include <cstdint>
#include <vector>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// The inference timesteps of diffusers' DDIM and PNDM, ascending. `offset` shifts leading spacing only.
/// Always num_steps values: for 62 values of n (61 is the first) diffusers' trailing spacing has one more, timestep -1.
/// REQUIRES: 1 <= num_steps <= num_timesteps.
std::vector<int64_t> ascending_timesteps(TimestepSpacing spacing, int64_t num_timesteps, int64_t num_steps, int64_t offset);

/// The sampler's view of abar: a negative timestep stands for the state after the last step.
struct AlphaTable {
  NoiseSchedule schedule;
  float final_alpha;

  AlphaTable(const SchedulerConfig& config, bool alpha_to_one)
      : schedule(config.noise), final_alpha(alpha_to_one ? 1.0F : schedule.alpha_cumprod(0)) {}
  float at(int64_t timestep) const { return timestep >= 0 ? schedule.alpha_cumprod(timestep) : final_alpha; }
};

/// Checks that every timestep lies in the schedule (an offset can push it out).
Status check_timesteps(const std::vector<int64_t>& timesteps, int64_t num_timesteps);

}  // namespace darkroom
