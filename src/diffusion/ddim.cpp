#include "ddim.h"

#include <algorithm>

#include "darkroom/core/check.h"
#include "root.h"
#include "timesteps.h"

namespace darkroom {

namespace {

class DdimSampler final : public Sampler {
 public:
  DdimSampler(const SamplerSpec& spec, const SchedulerConfig& config, std::vector<double> timesteps)
      : alphas_(config.noise, config.set_alpha_to_one.value_or(true)),
        clip_range_(config.clip_sample.value_or(true) ? config.clip_sample_range.value_or(1.0) : 0.0),
        stride_(config.noise.num_timesteps / spec.num_steps),
        eta_(spec.eta),
        timesteps_(std::move(timesteps)) {}

  const std::vector<double>& timesteps() const override { return timesteps_; }
  double initial_sigma() const override { return 1.0; }
  bool is_stochastic() const override { return eta_ > 0.0; }
  torch::Tensor scale_input(size_t, const torch::Tensor& latents) const override { return latents; }
  torch::Tensor add_noise(size_t index, const torch::Tensor& clean, const torch::Tensor& noise) const override {
    return alphas_.add_noise(static_cast<int64_t>(timesteps_.at(index)), clean, noise);
  }

  torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource& noise) override {
    const auto timestep = static_cast<int64_t>(timesteps_.at(index));
    const float alpha = alphas_.start(timestep);
    // Not the next entry of the list: the two differ for trailing spacing.
    const float alpha_next = alphas_.target(timestep - stride_);
    Prediction prediction = split_prediction(alphas_.schedule.config().prediction_type, latents, output, alpha);
    if (clip_range_ > 0.0) {
      prediction.clean = prediction.clean.clamp(-clip_range_, clip_range_);
    }
    const float variance = (1.0F - alpha_next) / (1.0F - alpha) * (1.0F - alpha / alpha_next);
    const float deviation = static_cast<float>(eta_) * root(variance);
    // Rounding takes it below 0 where no signal is left to begin with (zero terminal SNR) and eta is 1.
    const float direction = root(std::max(1.0F - alpha_next - deviation * deviation, 0.0F));
    torch::Tensor next = root(alpha_next) * prediction.clean + direction * prediction.noise;
    return eta_ > 0.0 ? next + deviation * noise() : next;
  }

 private:
  AlphaTable alphas_;
  double clip_range_;  // 0: do not clip.
  int64_t stride_;
  double eta_;
  std::vector<double> timesteps_;
};

}  // namespace

Result<std::unique_ptr<Sampler>> make_ddim_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  std::vector<int64_t> timesteps = ascending_timesteps(config.timestep_spacing.value_or(TimestepSpacing::kLeading),
                                                       config.noise.num_timesteps, spec.num_steps, config.steps_offset.value_or(0));
  DARKROOM_RETURN_IF_ERROR(check_timesteps(timesteps, NoiseSchedule(config.noise)));
  return std::unique_ptr<Sampler>(std::make_unique<DdimSampler>(spec, config, std::vector<double>(timesteps.rbegin(), timesteps.rend())));
}

}  // namespace darkroom
