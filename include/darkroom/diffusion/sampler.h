#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/diffusion/schedule.h"

namespace darkroom {

/// How inference timesteps are spread over the T training steps (Lin et al. 2023, table 2).
enum class TimestepSpacing { kLeading, kLinspace, kTrailing };

/// A diffusers scheduler_config.json as it stands: an absent key stays absent, because its meaning is the default of the
/// sampler that reads it, not of the class that the file names.
struct SchedulerConfig {
  std::string class_name;                           ///< `_class_name`, such as "PNDMScheduler"; may be empty.
  NoiseScheduleConfig noise;                        ///< The forward process.
  std::optional<TimestepSpacing> timestep_spacing;  ///< ddim, pndm: leading.
  std::optional<int> steps_offset;                  ///< Added to leading timesteps; ddim, pndm: 0.
  std::optional<bool> set_alpha_to_one;             ///< abar after the last step is 1 instead of abar_0; ddim: true, pndm: false.
  std::optional<bool> clip_sample;                  ///< Clamp the predicted clean latent; ddim: true.
  std::optional<double> clip_sample_range;          ///< To plus and minus this; ddim: 1.
  std::optional<bool> skip_prk_steps;               ///< Start with multistep instead of Runge-Kutta; pndm: false.

  /// Errors: as NoiseScheduleConfig::from_json; kFailedPrecondition also for thresholding.
  static Result<SchedulerConfig> from_json(const nlohmann::json& scheduler_config);
};

/// Which sampler to run and how.
struct SamplerSpec {
  std::string name;    ///< "ddim", "pndm"; empty: the one that the scheduler config's class names.
  int num_steps = 50;  ///< Inference steps n; a sampler may call the network more often (pndm: n + 1).
  double eta = 0.0;    ///< ddim: 0 deterministic, 1 as noisy as ancestral sampling.
};

/// Fresh standard normal noise in the shape of the latents; asked only by samplers that are stochastic.
using NoiseSource = std::function<torch::Tensor()>;

/// One run of a sampler over one batch: walks from noise to a clean latent, one network call at a time. The caller does
/// for each call i in order: output = network(scale_input(i, x), timestep(i)); x = step(i, output, x, noise).
/// Thread safety: one object, one run, one thread (multistep samplers remember earlier outputs).
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// The network's timestep at each call, descending in general; whole numbers for ddim and pndm.
  virtual const std::vector<double>& timesteps() const = 0;
  /// Standard deviation of the latents at the start: the caller multiplies unit noise by it.
  virtual double initial_sigma() const = 0;
  /// The network's input at call `index`.
  virtual torch::Tensor scale_input(size_t index, const torch::Tensor& latents) const = 0;
  /// The latents after call `index`. REQUIRES: calls come in order 0, 1, ...
  virtual torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource& noise) = 0;
};

/// The built samplers' names.
std::vector<std::string_view> sampler_names();

/// The sampler's name that `spec` asks for, or that the config's class stands for.
/// Errors: kInvalidArgument for an unknown name, one that is not built yet, or an empty one with a class of no built sampler.
Result<std::string> resolve_sampler_name(const SamplerSpec& spec, const SchedulerConfig& config);

/// Errors: as resolve_sampler_name; kInvalidArgument for a bad number of steps or eta.
Result<std::unique_ptr<Sampler>> make_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

/// The network as a sampler sees it: (noisy latents, timesteps (N)) -> output in the shape of the latents.
using Denoiser = std::function<torch::Tensor(const torch::Tensor& noisy, const torch::Tensor& timesteps_n)>;

/// Runs a fresh sampler to its end. `unit_noise` has variance 1; `should_stop` is asked before each call.
/// Errors: kCancelled.
Result<torch::Tensor> run_sampler(Sampler& sampler, const Denoiser& denoiser, const torch::Tensor& unit_noise, const NoiseSource& noise,
                                  const std::function<bool()>& should_stop = {});

}  // namespace darkroom
