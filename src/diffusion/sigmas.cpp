#include "sigmas.h"

#include <algorithm>
#include <cmath>

#include "timesteps.h"

namespace darkroom {

namespace {

constexpr double kKarrasRho = 7.0;
constexpr float kLeastAlphaCumprod = 0x1p-24F;  // Stands for the 0 of zero terminal SNR, whose sigma is infinite.

// Of the training schedule, ascending, float32 (T).
std::vector<float> training_sigmas(const NoiseScheduleConfig& config) {
  torch::Tensor alphas = NoiseSchedule(config).alphas_cumprod();
  if (config.zero_terminal_snr) {
    alphas = alphas.clone();
    alphas[-1] = kLeastAlphaCumprod;
  }
  return to_floats(((1.0 - alphas) / alphas).sqrt());
}

// Linear between the table's entries, constant outside, in double: numpy.interp.
double interpolate(const std::vector<float>& table, double place) {
  const double last = static_cast<double>(table.size() - 1);
  if (!(place > 0.0)) {
    return table.front();
  }
  if (place >= last) {
    return table.back();
  }
  const auto below = static_cast<size_t>(place);
  const double slope = static_cast<double>(table[below + 1]) - static_cast<double>(table[below]);
  return slope * (place - static_cast<double>(below)) + static_cast<double>(table[below]);
}

std::vector<double> interpolate_all(const std::vector<float>& table, const std::vector<double>& places) {
  std::vector<double> values;
  for (const double place : places) {
    values.push_back(interpolate(table, place));
  }
  return values;
}

std::vector<double> karras_sigmas(double largest, double least, int64_t num_steps) {
  const double start = std::pow(largest, 1.0 / kKarrasRho);
  const double end = std::pow(least, 1.0 / kKarrasRho);
  std::vector<double> sigmas;
  for (const double ramp : linspace(1.0, num_steps)) {
    sigmas.push_back(std::pow(start + ramp * (end - start), kKarrasRho));
  }
  return sigmas;
}

// The timestep at which the schedule has `sigma`, by linear interpolation of its float32 logarithms: a table in double would
// round some timesteps the other way.
double timestep_of_sigma(double sigma, const std::vector<float>& log_sigmas) {
  if (log_sigmas.size() == 1) {
    return 0.0;  // There is nothing to interpolate between.
  }
  const double log_sigma = std::log(std::max(sigma, 1e-10));
  const auto above = std::upper_bound(log_sigmas.begin(), log_sigmas.end(), log_sigma,
                                      [](double value, float entry) { return value < static_cast<double>(entry); });
  const auto found = static_cast<size_t>(std::max<std::ptrdiff_t>(above - log_sigmas.begin() - 1, 0));
  const size_t low = std::min(found, log_sigmas.size() - 2);
  const double distance = static_cast<double>(log_sigmas[low]) - log_sigma;
  const double weight = std::clamp(distance / static_cast<double>(log_sigmas[low] - log_sigmas[low + 1]), 0.0, 1.0);
  return (1.0 - weight) * static_cast<double>(low) + weight * static_cast<double>(low + 1);
}

std::vector<double> timesteps_of_sigmas(const std::vector<double>& sigmas, const std::vector<float>& table) {
  std::vector<float> log_sigmas(table.size());
  std::transform(table.begin(), table.end(), log_sigmas.begin(), [](float sigma) { return std::log(sigma); });
  std::vector<double> timesteps;
  for (const double sigma : sigmas) {
    timesteps.push_back(timestep_of_sigma(sigma, log_sigmas));
  }
  return timesteps;
}

SigmaPath finish_path(std::vector<double> timesteps, const std::vector<double>& sigmas, double final_sigma) {
  SigmaPath path{std::move(timesteps), std::vector<float>(sigmas.begin(), sigmas.end())};
  path.sigmas.push_back(static_cast<float>(final_sigma));
  return path;
}

std::vector<double> trailing(int64_t num_timesteps, int64_t num_steps) {
  const std::vector<int64_t> timesteps = trailing_timesteps(num_timesteps, num_steps);
  return {timesteps.begin(), timesteps.end()};
}

std::vector<double> euler_timesteps(TimestepSpacing spacing, int64_t num_timesteps, int64_t num_steps, int64_t offset) {
  if (spacing == TimestepSpacing::kTrailing) {
    return trailing(num_timesteps, num_steps);
  }
  std::vector<double> timesteps;
  for (const double timestep : linspace(static_cast<double>(num_timesteps - 1), num_steps)) {
    timesteps.push_back(static_cast<double>(static_cast<float>(timestep)));
  }
  for (size_t i = 0; spacing == TimestepSpacing::kLeading && i < timesteps.size(); ++i) {
    timesteps[i] = static_cast<double>(static_cast<int64_t>(i) * (num_timesteps / num_steps) + offset);
  }
  std::reverse(timesteps.begin(), timesteps.end());
  return timesteps;
}

std::vector<double> multistep_timesteps(TimestepSpacing spacing, int64_t num_timesteps, int64_t num_steps, int64_t offset) {
  if (spacing == TimestepSpacing::kTrailing) {
    return trailing(num_timesteps, num_steps);
  }
  std::vector<double> timesteps;
  const std::vector<double> spaced = linspace(static_cast<double>(num_timesteps - 1), num_steps + 1);
  for (int64_t i = num_steps; i > 0; --i) {
    timesteps.push_back(spacing == TimestepSpacing::kLinspace ? std::nearbyint(spaced[static_cast<size_t>(i)])
                                                              : static_cast<double>(i * (num_timesteps / (num_steps + 1)) + offset));
  }
  return timesteps;
}

}  // namespace

SigmaPath euler_path(const SchedulerConfig& config, int64_t num_steps, bool karras, FinalSigma final_sigma) {
  const std::vector<float> table = training_sigmas(config.noise);
  std::vector<double> timesteps = euler_timesteps(config.timestep_spacing.value_or(TimestepSpacing::kLinspace), config.noise.num_timesteps,
                                                  num_steps, config.steps_offset.value_or(0));
  std::vector<double> sigmas = interpolate_all(table, timesteps);
  if (karras) {
    sigmas = karras_sigmas(sigmas.front(), sigmas.back(), num_steps);
    timesteps = timesteps_of_sigmas(sigmas, table);
    // The network sees them in float32.
    std::transform(timesteps.begin(), timesteps.end(), timesteps.begin(),
                   [](double t) { return static_cast<double>(static_cast<float>(t)); });
  }
  return finish_path(std::move(timesteps), sigmas, final_sigma == FinalSigma::kZero ? 0.0 : static_cast<double>(table.front()));
}

Result<SigmaPath> multistep_path(const SchedulerConfig& config, int64_t num_steps, bool karras, KarrasEnd karras_end) {
  const std::vector<float> table = training_sigmas(config.noise);
  std::vector<double> timesteps = multistep_timesteps(config.timestep_spacing.value_or(TimestepSpacing::kLinspace),
                                                      config.noise.num_timesteps, num_steps, config.steps_offset.value_or(0));
  std::vector<double> sigmas = interpolate_all(table, timesteps);
  auto end = static_cast<double>(table.front());
  if (karras) {
    sigmas = karras_sigmas(table.back(), table.front(), num_steps);
    timesteps = timesteps_of_sigmas(sigmas, table);
    std::transform(timesteps.begin(), timesteps.end(), timesteps.begin(), [](double t) { return std::nearbyint(t); });
    end = karras_end == KarrasEnd::kLastSigma ? sigmas.back() : end;
  }
  const bool to_zero = config.final_sigma.value_or(FinalSigma::kZero) == FinalSigma::kZero;
  SigmaPath path = finish_path(std::move(timesteps), sigmas, to_zero ? 0.0 : end);
  const auto stuck = std::adjacent_find(path.sigmas.begin(), path.sigmas.end() - 1, [](float from, float to) { return !(from > to); });
  if (stuck != path.sigmas.end() - 1) {
    return Status::invalid_argument("the schedule has too few timesteps for this sampler and spacing; take fewer steps than:", num_steps);
  }
  return path;
}

VarianceLevels::VarianceLevels(const std::vector<float>& sigmas) {
  const torch::Tensor sigma = torch::tensor(sigmas, torch::kFloat32);
  alpha = 1.0 / (sigma.square() + 1.0).sqrt();
  noise = sigma * alpha;
  log_ratio = alpha.log() - noise.log();
}

std::vector<float> to_floats(const torch::Tensor& values) {
  const torch::Tensor contiguous = values.contiguous();
  return {contiguous.data_ptr<float>(), contiguous.data_ptr<float>() + contiguous.numel()};
}

}  // namespace darkroom
