#pragma once

#include <cstdint>
#include <vector>

#include "darkroom/diffusion/sampler.h"

namespace darkroom {

/// num_steps values from 0 to `last`, as numpy.linspace.
std::vector<double> linspace(double last, int64_t num_steps);

/// Trailing spacing, descending: numpy.arange(T, 0, -T / n) rounded half to even, less 1. As in diffusers these are n values,
/// but for 62 values of n (61 is the first) n + 1, of which the last is timestep -1.
std::vector<int64_t> trailing_timesteps(int64_t num_timesteps, int64_t num_steps);

/// The inference timesteps of diffusers' DDIM and PNDM, ascending. `offset` shifts leading spacing only.
/// REQUIRES: 1 <= num_steps <= num_timesteps.
std::vector<int64_t> ascending_timesteps(TimestepSpacing spacing, int64_t num_timesteps, int64_t num_steps, int64_t offset);

/// A sampler's view of abar.
struct AlphaTable {
  NoiseSchedule schedule;
  float final_alpha;  ///< After the last step.

  AlphaTable(const NoiseScheduleConfig& config, bool alpha_to_one)
      : schedule(config), final_alpha(alpha_to_one ? 1.0F : schedule.alpha_cumprod(0)) {}
  /// Where a step starts. Timestep -1 of trailing spacing reads the table's last entry, as a Python list does: such a run ends in
  /// a useless step, in diffusers, too.
  float start(int64_t timestep) const { return schedule.alpha_cumprod(timestep >= 0 ? timestep : timestep + schedule.num_timesteps()); }
  /// Where a step ends; a negative timestep stands for the state after the last one.
  float target(int64_t timestep) const { return timestep >= 0 ? schedule.alpha_cumprod(timestep) : final_alpha; }
  /// `clean` as noisy as the latents at the start of `timestep`.
  torch::Tensor add_noise(int64_t timestep, const torch::Tensor& clean, const torch::Tensor& noise) const;
};

/// Checks that the schedule has every timestep (an offset can push it out) and that each says something about the clean latent:
/// where abar is 0, a predicted noise does not. Errors: kInvalidArgument.
Status check_timesteps(const std::vector<int64_t>& timesteps, const NoiseSchedule& schedule);

}  // namespace darkroom
