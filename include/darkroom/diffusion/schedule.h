#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

/// What the network predicts from a noisy latent.
enum class PredictionType {
  kEpsilon,   ///< The noise.
  kVelocity,  ///< v = sqrt(abar) * noise - sqrt(1 - abar) * clean (Salimans and Ho 2022).
  kClean,     ///< The clean latent.
};

/// "epsilon", "v_prediction", "sample": the names of diffusers' configs.
std::string_view prediction_type_name(PredictionType type);

/// How beta runs from beta_start to beta_end.
enum class BetaSchedule {
  kLinear,        ///< beta is linear in t.
  kScaledLinear,  ///< sqrt(beta) is linear in t (latent diffusion).
};

/// The forward process. The defaults are Stable Diffusion's; a missing key of a scheduler_config.json means diffusers' own
/// default instead (linear, 0.0001 to 0.02), because that is what the file says there.
struct NoiseScheduleConfig {
  int num_timesteps = 1000;                                   ///< Length T of the forward process.
  double beta_start = 0.00085;                                ///< beta at t = 0.
  double beta_end = 0.012;                                    ///< beta at t = T - 1.
  BetaSchedule beta_schedule = BetaSchedule::kScaledLinear;   ///< Path between the two.
  PredictionType prediction_type = PredictionType::kEpsilon;  ///< What the network predicts.
  bool zero_terminal_snr = false;                             ///< Rescale the table so that abar ends at 0 (Lin et al. 2023, algorithm 1).

  /// kInvalidArgument naming the first bad field.
  Status validate() const;

  /// Reads diffusers' scheduler_config.json. Errors: kFailedPrecondition for a value of the wrong type or range, and for
  /// what is not built (trained_betas, other beta schedules).
  static Result<NoiseScheduleConfig> from_json(const nlohmann::json& scheduler_config);
};

/// The forward process q(x_t | x_0) = N(sqrt(abar_t) x_0, (1 - abar_t) I) (Ho et al. 2020). The table is computed in
/// float32 by the same operations in the same order as diffusers' schedulers, and so has the same bits.
/// Thread safety: immutable.
class NoiseSchedule {
 public:
  /// REQUIRES: config.validate() is ok.
  explicit NoiseSchedule(const NoiseScheduleConfig& config);

  const NoiseScheduleConfig& config() const { return config_; }
  int num_timesteps() const { return config_.num_timesteps; }
  /// abar_t, float32 (T).
  const torch::Tensor& alphas_cumprod() const { return alphas_cumprod_; }
  /// REQUIRES: 0 <= timestep < num_timesteps().
  float alpha_cumprod(int64_t timestep) const;

  // N batch; timesteps are int64 (N), the other tensors (N, ...).
  /// sqrt(abar) * clean + sqrt(1 - abar) * noise, each sample at its own timestep.
  torch::Tensor add_noise(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& timesteps_n) const;
  /// What the network has to predict, by config().prediction_type: the noise, v, or the clean latent.
  torch::Tensor target(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& timesteps_n) const;

  /// sqrt(abar) and sqrt(1 - abar) of each sample, float32 (N, 2): what ops' add_noise takes. The same bits as in add_noise and target
  /// here.
  torch::Tensor noise_scales(const torch::Tensor& timesteps_n) const;

 private:
  struct Scales {
    torch::Tensor signal;  // sqrt(abar), (N, 1, ...).
    torch::Tensor noise;   // sqrt(1 - abar), (N, 1, ...).
  };
  Scales scales(const torch::Tensor& timesteps_n, int64_t num_dimensions, torch::ScalarType dtype) const;

  NoiseScheduleConfig config_;
  torch::Tensor alphas_cumprod_;
};

/// The clean latent and the noise that a network's output stands for, at one timestep.
struct Prediction {
  torch::Tensor clean;
  torch::Tensor noise;
};

/// Splits a network's `output` for `noisy` at abar = `alpha_cumprod`.
/// epsilon: clean = (x - s*m)/a, noise = m; v: clean = a*x - s*m, noise = a*m + s*x; sample: clean = m, noise = (x - a*m)/s,
/// with a = sqrt(abar), s = sqrt(1-abar).
Prediction split_prediction(PredictionType type, const torch::Tensor& noisy, const torch::Tensor& output, float alpha_cumprod);

}  // namespace darkroom
