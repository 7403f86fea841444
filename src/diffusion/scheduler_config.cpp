#include "darkroom/diffusion/sampler.h"
#include "json_field.h"

namespace darkroom {

namespace {

Status read_spacing(const nlohmann::json& config, std::optional<TimestepSpacing>& spacing) {
  std::optional<std::string> name;
  DARKROOM_RETURN_IF_ERROR(read_field(config, "timestep_spacing", name));
  if (!name) {
    return Status::ok();
  }
  if (*name == "leading") {
    spacing = TimestepSpacing::kLeading;
  } else if (*name == "linspace") {
    spacing = TimestepSpacing::kLinspace;
  } else if (*name == "trailing") {
    spacing = TimestepSpacing::kTrailing;
  } else {
    return Status::failed_precondition("scheduler_config.json: timestep_spacing must be leading, linspace or trailing, got:", *name);
  }
  return Status::ok();
}

Status read_final_sigma(const nlohmann::json& config, std::optional<FinalSigma>& final_sigma) {
  std::optional<std::string> name;
  DARKROOM_RETURN_IF_ERROR(read_field(config, "final_sigmas_type", name));
  if (!name) {
    return Status::ok();
  }
  if (*name != "zero" && *name != "sigma_min") {
    return Status::failed_precondition("scheduler_config.json: final_sigmas_type must be zero or sigma_min, got:", *name);
  }
  final_sigma = *name == "zero" ? FinalSigma::kZero : FinalSigma::kSigmaMin;
  return Status::ok();
}

}  // namespace

Result<SchedulerConfig> SchedulerConfig::from_json(const nlohmann::json& scheduler_config) {
  SchedulerConfig config;
  DARKROOM_ASSIGN_OR_RETURN(config.noise, NoiseScheduleConfig::from_json(scheduler_config));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "_class_name", config.class_name));
  DARKROOM_RETURN_IF_ERROR(read_spacing(scheduler_config, config.timestep_spacing));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "steps_offset", config.steps_offset));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "set_alpha_to_one", config.set_alpha_to_one));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "clip_sample", config.clip_sample));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "clip_sample_range", config.clip_sample_range));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "skip_prk_steps", config.skip_prk_steps));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "use_karras_sigmas", config.use_karras_sigmas));
  DARKROOM_RETURN_IF_ERROR(read_final_sigma(scheduler_config, config.final_sigma));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "lower_order_final", config.lower_order_final));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "euler_at_final", config.euler_at_final));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "original_inference_steps", config.original_inference_steps));
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "timestep_scaling", config.timestep_scaling));
  config.settings = scheduler_config;
  bool thresholding = false;
  DARKROOM_RETURN_IF_ERROR(read_field(scheduler_config, "thresholding", thresholding));
  if (thresholding) {
    return Status::failed_precondition("scheduler_config.json: dynamic thresholding is not supported: thresholding true");
  }
  return config;
}

}  // namespace darkroom
