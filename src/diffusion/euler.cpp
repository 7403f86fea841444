#include "euler.h"

#include <algorithm>

#include "json_field.h"
#include "root.h"
#include "sigmas.h"

namespace darkroom {

namespace {

// Latents are x = clean + sigma * noise here; the network wants them at variance 1.
class EulerSampler final : public Sampler {
 public:
  EulerSampler(const SchedulerConfig& config, SigmaPath path, bool ancestral)
      : prediction_type_(config.noise.prediction_type), path_(std::move(path)), ancestral_(ancestral) {
    const float largest = *std::max_element(path_.sigmas.begin(), path_.sigmas.end());
    const bool leading = config.timestep_spacing.value_or(TimestepSpacing::kLinspace) == TimestepSpacing::kLeading;
    initial_sigma_ = leading ? root(largest * largest + 1.0F) : largest;
  }

  const std::vector<double>& timesteps() const override { return path_.timesteps; }
  double initial_sigma() const override { return static_cast<double>(initial_sigma_); }
  bool is_stochastic() const override { return ancestral_; }

  torch::Tensor scale_input(size_t index, const torch::Tensor& latents) const override {
    const float sigma = path_.sigmas.at(index);
    return latents / root(sigma * sigma + 1.0F);
  }

  torch::Tensor add_noise(size_t index, const torch::Tensor& clean, const torch::Tensor& noise) const override {
    return clean + noise * path_.sigmas.at(index);
  }

  torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource& noise) override {
    const float sigma = path_.sigmas.at(index);
    const float next = path_.sigmas.at(index + 1);
    const torch::Tensor slope = (latents - clean_latents(sigma, output, latents)) / sigma;
    if (!ancestral_) {
      return latents + slope * (next - sigma);
    }
    const float up = root(next * next * (sigma * sigma - next * next) / (sigma * sigma));
    const float down = root(next * next - up * up);
    return latents + slope * (down - sigma) + noise() * up;
  }

 private:
  torch::Tensor clean_latents(float sigma, const torch::Tensor& output, const torch::Tensor& latents) const {
    switch (prediction_type_) {
      case PredictionType::kVelocity:
        return output * (-sigma / root(sigma * sigma + 1.0F)) + latents / (sigma * sigma + 1.0F);
      case PredictionType::kClean:
        return output;
      case PredictionType::kEpsilon:
        break;
    }
    return latents - sigma * output;
  }

  PredictionType prediction_type_;
  SigmaPath path_;
  bool ancestral_;
  float initial_sigma_ = 0.0F;
};

}  // namespace

Result<std::unique_ptr<Sampler>> make_euler_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  DARKROOM_RETURN_IF_ERROR(check_settings("euler", config.settings,
                                          {{"interpolation_type", {"linear"}},
                                           {"timestep_type", {"discrete"}},
                                           {"use_exponential_sigmas", {false}},
                                           {"use_beta_sigmas", {false}},
                                           {"sigma_min", {}},
                                           {"sigma_max", {}}}));
  SigmaPath path =
      euler_path(config, spec.num_steps, config.use_karras_sigmas.value_or(false), config.final_sigma.value_or(FinalSigma::kZero));
  return std::unique_ptr<Sampler>(std::make_unique<EulerSampler>(config, std::move(path), false));
}

Result<std::unique_ptr<Sampler>> make_euler_ancestral_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  if (config.noise.prediction_type == PredictionType::kClean) {
    return Status::invalid_argument("sampler euler_a does not take networks that predict the clean latent; choose another one, such as:",
                                    "euler");
  }
  SigmaPath path = euler_path(config, spec.num_steps, false, FinalSigma::kZero);
  return std::unique_ptr<Sampler>(std::make_unique<EulerSampler>(config, std::move(path), true));
}

}  // namespace darkroom
