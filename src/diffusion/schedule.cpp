#include "darkroom/diffusion/schedule.h"

#include <cmath>
#include <string>

#include "darkroom/core/check.h"
#include "json_field.h"

namespace darkroom {

namespace {

// float32 throughout, linspace of the roots, then cumprod: diffusers' order, so its bits.
torch::Tensor compute_alphas_cumprod(const NoiseScheduleConfig& config) {
  torch::Tensor betas;
  if (config.beta_schedule == BetaSchedule::kLinear) {
    betas = torch::linspace(config.beta_start, config.beta_end, config.num_timesteps, torch::kFloat32);
  } else {
    betas = torch::linspace(std::sqrt(config.beta_start), std::sqrt(config.beta_end), config.num_timesteps, torch::kFloat32).square();
  }
  return torch::cumprod(1.0 - betas, 0);
}

Status refuse_unbuilt(const nlohmann::json& config) {
  const auto trained_betas = config.find("trained_betas");
  if (trained_betas != config.end() && !trained_betas->is_null()) {
    return Status::failed_precondition(
        "scheduler_config.json: a list of betas is not supported; the key must be null or absent: trained_betas");
  }
  bool rescale = false;
  DARKROOM_RETURN_IF_ERROR(read_field(config, "rescale_betas_zero_snr", rescale));
  if (rescale) {
    return Status::failed_precondition("scheduler_config.json: zero terminal SNR is not built yet: rescale_betas_zero_snr true");
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
  if (name != "epsilon" && name != "v_prediction") {
    return Status::failed_precondition("scheduler_config.json: prediction_type must be epsilon or v_prediction, got:", name);
  }
  type = name == "epsilon" ? PredictionType::kEpsilon : PredictionType::kVelocity;
  return Status::ok();
}

}  // namespace

std::string_view prediction_type_name(PredictionType type) { return type == PredictionType::kEpsilon ? "epsilon" : "v_prediction"; }

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

torch::Tensor NoiseSchedule::add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& timesteps_n) const {
  const Scales scale = scales(timesteps_n, clean.dim(), clean.scalar_type());
  return scale.signal * clean + scale.noise * noise;
}

torch::Tensor NoiseSchedule::target(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& timesteps_n) const {
  if (config_.prediction_type == PredictionType::kEpsilon) {
    return noise;
  }
  const Scales scale = scales(timesteps_n, clean.dim(), clean.scalar_type());
  return scale.signal * noise - scale.noise * clean;
}

Prediction split_prediction(PredictionType type, const torch::Tensor& noisy, const torch::Tensor& output, float alpha_cumprod) {
  const float signal = std::sqrt(alpha_cumprod);
  const float noise = std::sqrt(1.0F - alpha_cumprod);
  if (type == PredictionType::kEpsilon) {
    return {(noisy - noise * output) / signal, output};
  }
  return {signal * noisy - noise * output, signal * output + noise * noisy};
}

}  // namespace darkroom
