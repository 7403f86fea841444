#include "timesteps.h"

#include <cmath>

namespace darkroom {

namespace {

std::vector<int64_t> linspace_timesteps(int64_t num_timesteps, int64_t num_steps) {
  std::vector<int64_t> timesteps(static_cast<size_t>(num_steps));
  const double last = static_cast<double>(num_timesteps - 1);
  const double stride = num_steps > 1 ? last / static_cast<double>(num_steps - 1) : 0.0;
  for (int64_t i = 0; i < num_steps; ++i) {
    timesteps[static_cast<size_t>(i)] = std::llrint(static_cast<double>(i) * stride);  // Half to even, as NumPy.
  }
  if (num_steps > 1) {
    timesteps.back() = num_timesteps - 1;
  }
  return timesteps;
}

std::vector<int64_t> trailing_timesteps(int64_t num_timesteps, int64_t num_steps) {
  const auto start = static_cast<double>(num_timesteps);
  // numpy.arange steps by the difference of its first two values, the second already rounded.
  const double delta = (start - start / static_cast<double>(num_steps)) - start;
  std::vector<int64_t> timesteps(static_cast<size_t>(num_steps));
  for (int64_t i = 0; i < num_steps; ++i) {
    timesteps[static_cast<size_t>(num_steps - 1 - i)] = std::llrint(start + static_cast<double>(i) * delta) - 1;
  }
  return timesteps;
}

}  // namespace

std::vector<int64_t> ascending_timesteps(TimestepSpacing spacing, int64_t num_timesteps, int64_t num_steps, int64_t offset) {
  if (spacing == TimestepSpacing::kLinspace) {
    return linspace_timesteps(num_timesteps, num_steps);
  }
  if (spacing == TimestepSpacing::kTrailing) {
    return trailing_timesteps(num_timesteps, num_steps);
  }
  std::vector<int64_t> timesteps(static_cast<size_t>(num_steps));
  for (int64_t i = 0; i < num_steps; ++i) {
    timesteps[static_cast<size_t>(i)] = i * (num_timesteps / num_steps) + offset;
  }
  return timesteps;
}

Status check_timesteps(const std::vector<int64_t>& timesteps, int64_t num_timesteps) {
  for (const int64_t timestep : timesteps) {
    if (timestep < 0 || timestep >= num_timesteps) {
      return Status::invalid_argument(
          "the sampler's steps leave the noise schedule; take fewer steps (timesteps, offending one):", num_timesteps, timestep);
    }
  }
  return Status::ok();
}

}  // namespace darkroom
