#include "darkroom/diffusion/schedule.h"

#include <cmath>
#include <string>

#include "darkroom/core/check.h"
#include "json_field.h"
#include "root.h"

namespace darkroom {

namespace {

// Algorithm 1 of Lin et al. 2023: sqrt(abar) is shifted to end at 0 and scaled to keep its first value. Back to betas and on
// to abar again, because that is where diffusers' bits come from.
torch::Tensor rescale_to_zero_terminal_snr(const torch::Tensor& betas) {
  const torch::Tensor roots = torch::cumprod(1.0 - betas, 0).sqrt();
  const torch::Tensor first = roots[0];
  const torch::Tensor last = roots[-1];
  const torch::Tensor rescaled = ((roots - last) * (first / (first - last))).square();
  const torch::Tensor alphas = torch::cat({rescaled.slice(0, 0, 1), rescaled.slice(0, 1) / rescaled.slice(0, 0, -1)});
  return 1.0 - alphas;
}

// float32 throughout, linspace of the roots, then cumprod: diffusers' order, so its bits.
torch::Tensor compute_alphas_cumprod(const NoiseScheduleConfig& config) {
  torch::Tensor betas;
  if (config.beta_schedule == BetaSchedule::kLinear) {
    betas = torch::linspace(config.beta_start, config.beta_end, config.num_timesteps, torch::kFloat32);
  } else {
    betas = torch::linspace(std::sqrt(config.beta_start), std::sqrt(config.beta_end), config.num_timesteps, torch::kFloat32).square();
  }
  if (config.zero_terminal_snr) {
    betas = rescale_to_zero_terminal_snr(betas);
  }
  return torch::cumprod(1.0 - betas, 0);
}

Status refuse_unbuilt(const nlohmann::json& config) {
  const auto trained_betas = config.find("trained_betas");
  if (trained_betas != config.end() && !trained_betas->is_null()) {
    return Status::failed_precondition(
        "scheduler_config.json: a list of betas is not supported; the key must be null or absent: trained_betas");
  }
  return Status::ok();
}

Status read_beta_schedule(const nlohmann::json& config, BetaSchedule& schedule) {
  std::string name = "linear";
  DARKROOM_RETURN_IF_ERROR(read_field(config, "beta_schedule", name));
  if (name != "linear" && name != "scaled_linear") {
    return Status::failed_precondition("scheduler_config.json: beta_schedule must be linear or scaled_linear, got:", name);
  }
  schedule = name == "linear" ? BetaSchedule::kLinear : BetaSchedule::kScaledLinear;
  return Status::ok();
}

Status read_prediction_type(const nlohmann::json& config, PredictionType& type) {
  std::string name = "epsilon";
  DARKROOM_RETURN_IF_ERROR(read_field(config, "prediction_type", name));
  for (const PredictionType known : {PredictionType::kEpsilon, PredictionType::kVelocity, PredictionType::kClean}) {
    if (name == prediction_type_name(known)) {
      type = known;
      return Status::ok();
    }
  }
  return Status::failed_precondition("scheduler_config.json: prediction_type must be epsilon, v_prediction or sample, got:", name);
}

}  // namespace

std::string_view prediction_type_name(PredictionType type) {
  switch (type) {
    case PredictionType::kVelocity:
      return "v_prediction";
    case PredictionType::kClean:
      return "sample";
    case PredictionType::kEpsilon:
      break;
  }
  return "epsilon";
}

Status NoiseScheduleConfig::validate() const {
  if (num_timesteps < 1 || num_timesteps > 1'000'000) {
    return Status::invalid_argument("noise schedule: num_timesteps must be 1 to 1000000, got:", num_timesteps);
  }
  if (!(beta_start > 0.0 && beta_start < 1.0)) {
    return Status::invalid_argument("noise schedule: beta_start must be between 0 and 1, got:", beta_start);
  }
  if (!(beta_end >= beta_start && beta_end < 1.0)) {
    return Status::invalid_argument("noise schedule: beta_end must be at least beta_start and below 1, got:", beta_end);
  }
  return Status::ok();
}

Result<NoiseScheduleConfig> NoiseScheduleConfig::from_json(const nlohmann::json& scheduler_config) {
  if (!scheduler_config.is_object()) {
    return Status::failed_precondition("scheduler_config.json must hold one JSON object, got:", scheduler_config.type_name());
  }
  NoiseScheduleConfig config;
  config.beta_start = 0.0001;
  config.beta_end = 0.02;
  DARKROOM_RETURN_IF_ERROR(refuse_unbuilt(scheduler_config));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "num_train_timesteps", config.num_timesteps));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "beta_start", config.beta_start));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "beta_end", config.beta_end));
  DARKROOM_RETURN_IF_ERROR(read_beta_schedule(scheduler_config, config.beta_schedule));
  DARKROOM_RETURN_IF_ERROR(read_prediction_type(scheduler_config, config.prediction_type));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "rescale_betas_zero_snr", config.zero_terminal_snr));
  const Status valid = config.validate();
  if (!valid.is_ok()) {
    return Status::failed_precondition("scheduler_config.json:", valid.message());
  }
  return config;
}

NoiseSchedule::NoiseSchedule(const NoiseScheduleConfig& config) : config_(config) {
  const Status valid = config.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
  alphas_cumprod_ = compute_alphas_cumprod(config);
}

float NoiseSchedule::alpha_cumprod(int64_t timestep) const {
  DARKROOM_CHECK(timestep >= 0 && timestep < num_timesteps(), "timestep outside the schedule:", timestep);
  return alphas_cumprod_.data_ptr<float>()[timestep];
}

NoiseSchedule::Scales NoiseSchedule::scales(const torch::Tensor& timesteps_n, int64_t num_dimensions, torch::ScalarType dtype) const {
  std::vector<int64_t> shape(static_cast<size_t>(num_dimensions), 1);
  shape[0] = timesteps_n.numel();
  const torch::Tensor alphas = alphas_cumprod_.to(timesteps_n.device()).to(dtype).index({timesteps_n}).view(shape);
  return {alphas.sqrt(), (1.0 - alphas).sqrt()};
}

torch::Tensor NoiseSchedule::noise_scales(const torch::Tensor& timesteps_n) const {
  const Scales scale = scales(timesteps_n, 1, torch::kFloat32);
  return torch::stack({scale.signal, scale.noise}, 1);
}

torch::Tensor NoiseSchedule::add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& timesteps_n) const {
  const Scales scale = scales(timesteps_n, clean.dim(), clean.scalar_type());
  return scale.signal * clean + scale.noise * noise;
}

torch::Tensor NoiseSchedule::target(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& timesteps_n) const {
  if (config_.prediction_type != PredictionType::kVelocity) {
    return config_.prediction_type == PredictionType::kEpsilon ? noise : clean;
  }
  const Scales scale = scales(timesteps_n, clean.dim(), clean.scalar_type());
  return scale.signal * noise - scale.noise * clean;
}

Prediction split_prediction(PredictionType type, const torch::Tensor& noisy, const torch::Tensor& output, float alpha_cumprod) {
  const float signal = root(alpha_cumprod);
  const float noise = root(1.0F - alpha_cumprod);
  if (type == PredictionType::kEpsilon) {
    return {(noisy - noise * output) / signal, output};
  }
  if (type == PredictionType::kClean) {
    return {output, (noisy - signal * output) / noise};
  }
  return {signal * noisy - noise * output, signal * output + noise * noisy};
}

}  // namespace darkroom
