#pragma once

#include <torch/torch.h>

#include <vector>

#include "call_order.h"
#include "darkroom/diffusion/sampler.h"
#include "sigmas.h"

namespace darkroom {

/// What the multistep solvers over a path of sigmas share: latents of variance 1, and networks whose output is turned into the
/// clean latent.
class MultistepSolver : public Sampler {
 public:
  const std::vector<double>& timesteps() const override { return path_.timesteps; }
  double initial_sigma() const override { return 1.0; }
  bool is_stochastic() const override { return false; }
  torch::Tensor scale_input(size_t, const torch::Tensor& latents) const override { return latents; }
  torch::Tensor add_noise(size_t index, const torch::Tensor& clean, const torch::Tensor& noise) const override {
    return alphas_.at(index) * clean + noises_.at(index) * noise;
  }

 protected:
  MultistepSolver(const SchedulerConfig& config, SigmaPath path)
      : prediction_type_(config.noise.prediction_type),
        path_(std::move(path)),
        levels_(path_.sigmas),
        alphas_(to_floats(levels_.alpha)),
        noises_(to_floats(levels_.noise)),
        order_(path_.timesteps.size()) {}

  size_t enter(size_t index) const { return order_.enter(index); }
  void leave(size_t index) { order_.leave(index); }
  const VarianceLevels& levels() const { return levels_; }
  float alpha(size_t level) const { return alphas_[level]; }
  /// noise' / noise of a call: the factor of the latents in every update of these solvers.
  float ratio(size_t index) const { return noises_[index + 1] / noises_[index]; }

  torch::Tensor clean_latents(size_t index, const torch::Tensor& output, const torch::Tensor& latents) const {
    switch (prediction_type_) {
      case PredictionType::kVelocity:
        return alphas_[index] * latents - noises_[index] * output;
      case PredictionType::kClean:
        return output;
      case PredictionType::kEpsilon:
        break;
    }
    return (latents - noises_[index] * output) / alphas_[index];
  }

 private:
  PredictionType prediction_type_;
  SigmaPath path_;
  VarianceLevels levels_;
  std::vector<float> alphas_;
  std::vector<float> noises_;
  CallOrder order_;
};

}  // namespace darkroom
