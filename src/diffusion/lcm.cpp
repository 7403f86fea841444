#include "lcm.h"

#include <cmath>

#include "root.h"
#include "timesteps.h"

namespace darkroom {

namespace {

constexpr float kSigmaData = 0.5F;  // Of the consistency function's boundary condition (Song et al. 2023, appendix C).
constexpr int kDistilledSteps = 50;

class LcmSampler final : public Sampler {
 public:
  LcmSampler(const SchedulerConfig& config, const NoiseScheduleConfig& noise, const std::vector<int64_t>& timesteps)
      : alphas_(noise, true),
        clip_range_(config.clip_sample.value_or(false) ? config.clip_sample_range.value_or(1.0) : 0.0),
        timestep_scaling_(static_cast<float>(config.timestep_scaling.value_or(10.0))),
        timesteps_(timesteps.begin(), timesteps.end()) {}

  const std::vector<double>& timesteps() const override { return timesteps_; }
  double initial_sigma() const override { return 1.0; }
  bool is_stochastic() const override { return timesteps_.size() > 1; }
  torch::Tensor scale_input(size_t, const torch::Tensor& latents) const override { return latents; }
  torch::Tensor add_noise(size_t index, const torch::Tensor& clean, const torch::Tensor& noise) const override {
    return alphas_.add_noise(timestep(index), clean, noise);
  }

  torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource& noise) override {
    torch::Tensor clean =
        split_prediction(alphas_.schedule.config().prediction_type, latents, output, alphas_.start(timestep(index))).clean;
    if (clip_range_ > 0.0) {
      clean = clean.clamp(-clip_range_, clip_range_);
    }
    const float scaled = static_cast<float>(timesteps_.at(index)) * timestep_scaling_;
    const float spread = scaled * scaled + kSigmaData * kSigmaData;
    const torch::Tensor denoised = scaled / root(spread) * clean + kSigmaData * kSigmaData / spread * latents;
    return index + 1 < timesteps_.size() ? alphas_.add_noise(timestep(index + 1), denoised, noise()) : denoised;
  }

 private:
  int64_t timestep(size_t index) const { return static_cast<int64_t>(timesteps_.at(index)); }

  AlphaTable alphas_;
  double clip_range_;  // 0: do not clip.
  float timestep_scaling_;
  std::vector<double> timesteps_;
};

// The scheduler that diffusers names LCM has Stable Diffusion's betas for keys that a file lacks.
NoiseScheduleConfig with_own_betas(const SchedulerConfig& config) {
  NoiseScheduleConfig noise = config.noise;
  const auto is_absent = [&](const char* key) { return config.settings.is_object() && !config.settings.contains(key); };
  const NoiseScheduleConfig own;
  noise.beta_start = is_absent("beta_start") ? own.beta_start : noise.beta_start;
  noise.beta_end = is_absent("beta_end") ? own.beta_end : noise.beta_end;
  noise.beta_schedule = is_absent("beta_schedule") ? own.beta_schedule : noise.beta_schedule;
  return noise;
}

}  // namespace

Result<std::unique_ptr<Sampler>> make_lcm_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  const NoiseScheduleConfig noise = with_own_betas(config);
  const int distilled = config.original_inference_steps.value_or(kDistilledSteps);
  if (distilled < 1 || distilled > noise.num_timesteps) {
    return Status::failed_precondition(
        "scheduler_config.json: original_inference_steps must be 1 to the number of training timesteps, got:", distilled);
  }
  if (spec.num_steps > distilled) {
    return Status::invalid_argument("sampler lcm takes at most as many steps as its model was distilled with (steps, got):", distilled,
                                    spec.num_steps);
  }
  DARKROOM_RETURN_IF_ERROR(noise.validate());
  // Evenly spread over the distilled schedule k-1, 2k-1, ..., from its end.
  std::vector<int64_t> timesteps;
  const double stride = static_cast<double>(distilled) / spec.num_steps;
  for (int i = 0; i < spec.num_steps; ++i) {
    const auto place = static_cast<int64_t>(std::floor(i * stride));
    timesteps.push_back((distilled - place) * (noise.num_timesteps / distilled) - 1);
  }
  DARKROOM_RETURN_IF_ERROR(check_timesteps(timesteps, NoiseSchedule(noise)));
  return std::unique_ptr<Sampler>(std::make_unique<LcmSampler>(config, noise, timesteps));
}

}  // namespace darkroom
