#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/diffusion/sampler.h"
#include "golden_file.h"

namespace darkroom {

/// Stable Diffusion 2's scheduler_config.json.
inline const nlohmann::json kSd2 = {{"_class_name", "PNDMScheduler"},
                                    {"num_train_timesteps", 1000},
                                    {"beta_start", 0.00085},
                                    {"beta_end", 0.012},
                                    {"set_alpha_to_one", false},
                                    {"beta_schedule", "scaled_linear"},
                                    {"clip_sample", false},
                                    {"skip_prk_steps", true},
                                    {"steps_offset", 1}};

inline nlohmann::json with(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return config;
}

inline SchedulerConfig scheduler(const nlohmann::json& config) { return SchedulerConfig::from_json(config).value(); }

inline SamplerSpec spec(const std::string& name, int num_steps, double eta = 0.0) {
  return {.name = name, .num_steps = num_steps, .eta = eta};
}

/// Noise of torch's CPU generator with seed 0, in the shape of golden_start().
inline NoiseSource golden_noise() {
  return [generator = at::make_generator<at::CPUGeneratorImpl>(0)]() mutable { return torch::randn({4, 3, 8, 8}, generator); };
}

/// diffusers' own scheduler tests.
inline torch::Tensor golden_run(const SamplerSpec& spec, const nlohmann::json& config) {
  const auto sampler = make_sampler(spec, scheduler(config));
  return run_sampler_from(**sampler, 0, golden_network, golden_start() * (*sampler)->initial_sigma(), golden_noise()).value();
}

inline double sum_abs(const torch::Tensor& tensor) { return tensor.to(torch::kFloat64).abs().sum().item<double>(); }

/// Of a sampler for Stable Diffusion 2's config with `changes`.
inline std::vector<double> timesteps(const std::string& name, int num_steps, const nlohmann::json& changes = nlohmann::json::object()) {
  return make_sampler(spec(name, num_steps), scheduler(with(kSd2, changes))).value()->timesteps();
}

}  // namespace darkroom
