#include "timesteps.h"

#include <algorithm>
#include <cmath>

#include "root.h"

namespace darkroom {

std::vector<double> linspace(double last, int64_t num_steps) {
  std::vector<double> values(static_cast<size_t>(num_steps));
  const double stride = num_steps > 1 ? last / static_cast<double>(num_steps - 1) : 0.0;
  for (int64_t i = 0; i < num_steps; ++i) {
    values[static_cast<size_t>(i)] = static_cast<double>(i) * stride;
  }
  if (num_steps > 1) {
    values.back() = last;
  }
  return values;
}

std::vector<int64_t> trailing_timesteps(int64_t num_timesteps, int64_t num_steps) {
  const auto start = static_cast<double>(num_timesteps);
  const double stride = start / static_cast<double>(num_steps);
  // numpy.arange takes its length from the stride, but steps by the difference of its first two values, the second already rounded.
  const auto length = static_cast<int64_t>(std::ceil(start / stride));
  const double delta = (start - stride) - start;
  std::vector<int64_t> timesteps(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    timesteps[static_cast<size_t>(i)] = std::llrint(start + static_cast<double>(i) * delta) - 1;  // Half to even, as NumPy.
  }
  return timesteps;
}

std::vector<int64_t> ascending_timesteps(TimestepSpacing spacing, int64_t num_timesteps, int64_t num_steps, int64_t offset) {
  if (spacing == TimestepSpacing::kTrailing) {
    std::vector<int64_t> timesteps = trailing_timesteps(num_timesteps, num_steps);
    std::reverse(timesteps.begin(), timesteps.end());
    return timesteps;
  }
  std::vector<int64_t> timesteps;
  if (spacing == TimestepSpacing::kLinspace) {
    for (const double timestep : linspace(static_cast<double>(num_timesteps - 1), num_steps)) {
      timesteps.push_back(std::llrint(timestep));
    }
    return timesteps;
  }
  for (int64_t i = 0; i < num_steps; ++i) {
    timesteps.push_back(i * (num_timesteps / num_steps) + offset);
  }
  return timesteps;
}

torch::Tensor AlphaTable::add_noise(int64_t timestep, const torch::Tensor& clean, const torch::Tensor& noise) const {
  const float alpha = start(timestep);
  return root(alpha) * clean + root(1.0F - alpha) * noise;
}

Status check_timesteps(const std::vector<int64_t>& timesteps, const NoiseSchedule& schedule) {
  for (const int64_t timestep : timesteps) {
    if (timestep < -1 || timestep >= schedule.num_timesteps()) {
      return Status::invalid_argument(
          "the sampler's steps leave the noise schedule; take fewer steps (timesteps, offending one):", schedule.num_timesteps(), timestep);
    }
    if (timestep >= 0 && schedule.alpha_cumprod(timestep) == 0.0F && schedule.config().prediction_type == PredictionType::kEpsilon) {
      return Status::invalid_argument(
          "zero terminal SNR needs a network that predicts v: the noise alone does not tell the picture at timestep:", timestep);
    }
  }
  return Status::ok();
}

}  // namespace darkroom
