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

/// The noise level at which a sampler with sigmas ends.
enum class FinalSigma {
  kZero,      ///< No noise.
  kSigmaMin,  ///< The least sigma of the training schedule.
};

/// A diffusers scheduler_config.json as it stands: an absent key stays absent, because its meaning is the default of the
/// sampler that reads it, not of the class that the file names.
struct SchedulerConfig {
  std::string class_name;                           ///< `_class_name`, such as "PNDMScheduler"; may be empty.
  NoiseScheduleConfig noise;                        ///< The forward process.
  std::optional<TimestepSpacing> timestep_spacing;  ///< ddim, pndm: leading; lcm has its own; others: linspace.
  std::optional<int> steps_offset;                  ///< Added to leading timesteps; 0.
  std::optional<bool> set_alpha_to_one;             ///< abar after the last step is 1 instead of abar_0; ddim: true, pndm: false.
  std::optional<bool> clip_sample;                  ///< Clamp the predicted clean latent; ddim: true, lcm: false.
  std::optional<double> clip_sample_range;          ///< To plus and minus this; ddim, lcm: 1.
  std::optional<bool> skip_prk_steps;               ///< Start with multistep instead of Runge-Kutta; pndm: false.
  std::optional<bool> use_karras_sigmas;            ///< Spread sigmas as Karras et al. 2022, formula 5; euler, unipc: false.
  std::optional<FinalSigma> final_sigma;            ///< `final_sigmas_type`; euler, dpmpp_2m, unipc: zero.
  std::optional<bool> lower_order_final;            ///< End with a first-order step (dpmpp_2m: below 15 steps); true.
  std::optional<bool> euler_at_final;               ///< dpmpp_2m: end with a first-order step in any case; false.
  std::optional<int> original_inference_steps;      ///< lcm: steps of the distilled schedule, of which a run takes some; 50.
  std::optional<double> timestep_scaling;           ///< lcm: of the boundary condition; 10.
  nlohmann::json settings;                          ///< The whole file, for what only one sampler refuses; null without a file.

  /// Errors: as NoiseScheduleConfig::from_json; kFailedPrecondition also for thresholding.
  static Result<SchedulerConfig> from_json(const nlohmann::json& scheduler_config);
};

/// Which sampler to run and how.
struct SamplerSpec {
  std::string name;    ///< One of sampler_names(); empty: the one that the scheduler config's class names.
  int num_steps = 50;  ///< Inference steps n; a sampler may call the network more often (pndm: n + 1).
  double eta = 0.0;    ///< ddim: 0 deterministic, 1 as noisy as ancestral sampling; others do not read it.
};

/// Fresh standard normal noise in the shape of the latents; asked only by samplers that are stochastic.
using NoiseSource = std::function<torch::Tensor()>;

/// One run of a sampler over one batch: walks from noise to a clean latent, one network call at a time. The caller does
/// for each call i in order: output = network(scale_input(i, x), timestep(i)); x = step(i, output, x, noise).
/// Thread safety: one object, one run, one thread (multistep samplers remember earlier outputs).
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// The network's timestep at each call, descending in general; fractions only for euler and euler_a.
  virtual const std::vector<double>& timesteps() const = 0;
  /// Standard deviation of the latents at the start: the caller multiplies unit noise by it.
  virtual double initial_sigma() const = 0;
  /// Whether a run asks for noise.
  virtual bool is_stochastic() const = 0;
  /// The network's input at call `index`.
  virtual torch::Tensor scale_input(size_t index, const torch::Tensor& latents) const = 0;
  /// `clean` with `noise` of variance 1 mixed in: latents with which a run may start at call `index` (image to image).
  virtual torch::Tensor add_noise(size_t index, const torch::Tensor& clean, const torch::Tensor& noise) const = 0;
  /// The latents after call `index`. A call that throws changes nothing and may be made again. REQUIRES: calls come in order; the first
  /// may be any.
  virtual torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource& noise) = 0;
};

/// The samplers' names: ddim, pndm, euler, euler_a, dpmpp_2m, dpmpp_2m_karras, unipc, lcm.
std::vector<std::string_view> sampler_names();

/// The sampler's name that `spec` asks for, or that the config's class stands for. dpmpp_2m and dpmpp_2m_karras differ in their
/// sigmas whatever the config says of these; of the class that both implement, the config's use_karras_sigmas decides.
/// Errors: kInvalidArgument for an unknown name, or an empty one with a class of no built sampler.
Result<std::string> resolve_sampler_name(const SamplerSpec& spec, const SchedulerConfig& config);

/// Errors: as resolve_sampler_name; kInvalidArgument for a bad number of steps or eta, or a schedule that the sampler cannot
/// run; kFailedPrecondition for a setting of the config that it does not build.
Result<std::unique_ptr<Sampler>> make_sampler(const SamplerSpec& spec, const SchedulerConfig& config);

/// The network as a sampler sees it: (noisy latents, timesteps (N)) -> output in the shape of the latents.
using Denoiser = std::function<torch::Tensor(const torch::Tensor& noisy, const torch::Tensor& timesteps_n)>;

/// A sampler's timesteps on `device`, (K): int64 where all are whole numbers, else float32. Made once a run, because an upload in every
/// call would make the CPU and the device wait for each other.
torch::Tensor upload_timesteps(const Sampler& sampler, const torch::Device& device);

/// `denoiser` for one run over one shape on `device`: a GPU records what its first calls ask for and replays it (DeviceGraph), with inputs
/// and output in the same memory every time; the caller gets a copy. With `replays` false, and on the CPU, every call calls it. REQUIRES of
/// the denoiser what DeviceGraph does. Thread safety: none.
Denoiser recorded_denoiser(Denoiser denoiser, const torch::Device& device, bool replays = true);

/// Runs a fresh sampler from call `first_call` to its end, on the device of `latents`, without waiting for it. `latents` are as noisy as
/// that call wants them (add_noise; of call 0: noise of variance 1 times initial_sigma()); `should_stop` is asked before each call. Errors:
/// kCancelled.
Result<torch::Tensor> run_sampler_from(Sampler& sampler, size_t first_call, const Denoiser& denoiser, torch::Tensor latents,
                                       const NoiseSource& noise, const std::function<bool()>& should_stop = {});

}  // namespace darkroom
