#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "darkroom/core/status.h"
#include "darkroom/diffusion/guidance.h"
#include "darkroom/diffusion/schedule.h"

namespace darkroom {

// N batch, C latent channels, T tokens, W text width.

/// Which sample of which epoch: with the seed it fixes every random draw, whatever the batch around it.
struct SampleCoordinates {
  uint32_t epoch = 0;
  uint64_t key_hash = 0;  ///< hash_key(key).
};

/// Latents and text states of some samples, float32.
struct DiffusionBatch {
  std::vector<SampleCoordinates> samples;  ///< N.
  torch::Tensor latents_nchw;              ///< Scaled latents, as stored.
  torch::Tensor states_ntw;                ///< Text states before caption dropout.

  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  /// Samples [first, first + count); the tensors are views.
  DiffusionBatch slice(int64_t first, int64_t count) const;
};

struct DiffusionObjectiveOptions {
  uint64_t seed = 0;          ///< Of noise, timesteps and caption dropout.
  double caption_drop = 0.1;  ///< Share of samples trained with the empty caption's states; 0: none.
  double min_snr_gamma = 0;   ///< Weigh timesteps by min-SNR with this gamma (5 in the paper); 0: all alike.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
  /// Also whether the objective can be had on a noise schedule: min-SNR divides by the SNR, which zero terminal SNR makes 0.
  Status validate_for(const NoiseScheduleConfig& noise) const;
};

/// The draws that decide what the network sees of some samples: a few numbers a sample, made on the CPU, from which the device makes
/// the rest. A pure function of (options, schedule, samples).
struct DiffusionDraws {
  torch::Tensor coordinates_n2;  ///< int64: epoch and key hash, of the noise (ops/counter_normal.h).
  torch::Tensor timesteps_n;     ///< int64, uniform in [0, T).
  torch::Tensor dropped_n;       ///< bool: the caption is dropped.
  torch::Tensor scales_n2;       ///< float32: sqrt(abar) and sqrt(1 - abar).
  torch::Tensor weights_n;       ///< float32: loss_weights(timesteps_n).

  /// Tensors of the same kinds for `num_samples`, uninitialised on a device: what a captured graph reads.
  static DiffusionDraws empty(int64_t num_samples, const torch::Device& device);
  /// Copies all of `source` here; waits for nothing when both sides allow it.
  void copy_from(const DiffusionDraws& source);
  /// Samples [first, first + count) as views.
  DiffusionDraws slice(int64_t first, int64_t count) const;
  /// The same on a device; shared where they are there. Waits for it.
  DiffusionDraws to(const torch::Device& device) const;
};

/// Samples as a pass over them reads them, all on one device: their draws, latents and text states as they are stored, in any type.
struct LoadedDiffusion {
  DiffusionDraws draws;
  torch::Tensor latents_nchw;
  torch::Tensor states_ntw;

  /// All of them in a fixed order, as inputs of a recorded pass (DeviceBatch), and of such inputs. REQUIRES: of: as many as tensors()
  /// gives.
  std::vector<torch::Tensor> tensors() const;
  static LoadedDiffusion of(const std::vector<torch::Tensor>& tensors);
};

/// What the network sees and has to say: a pure function of (options, batch).
struct DiffusionInputs {
  torch::Tensor noise_nchw;   ///< Standard normal.
  torch::Tensor timesteps_n;  ///< int64, uniform in [0, T).
  torch::Tensor dropped_n;    ///< bool: the caption was dropped.
  torch::Tensor weights_n;    ///< float32: what a sample's squared error counts.
  torch::Tensor states_ntw;   ///< Text states after caption dropout.
  torch::Tensor noisy_nchw;   ///< add_noise(latents, noise, timesteps).
  torch::Tensor target_nchw;  ///< The noise, or v.
};

/// The denoising objective: mean squared error against noise or v at a uniform timestep (Ho et al. 2020), with caption
/// dropout for classifier-free guidance and, if asked for, min-SNR weights (Hang et al. 2023, arXiv 2303.09556). Every draw comes from
/// CounterRandom by (seed, purpose, epoch, key), so neither the batch's composition nor its split changes a sample's loss. Thread safety:
/// immutable.
class DiffusionObjective {
 public:
  /// `empty_states_tw`: the empty caption's states (T, W), on the device where mix runs; may be undefined when caption_drop is 0.
  /// REQUIRES: options.validate_for(schedule.config()) is ok.
  DiffusionObjective(NoiseSchedule schedule, const DiffusionObjectiveOptions& options, torch::Tensor empty_states_tw);

  const NoiseSchedule& schedule() const { return schedule_; }
  /// Draws for some samples, on the CPU.
  DiffusionDraws draw(const std::vector<SampleCoordinates>& samples) const;
  /// Makes the network's inputs of draws, latents and states that are on one device. Does not wait for it, so it can be captured in a
  /// graph; no gradient is recorded.
  DiffusionInputs mix(const DiffusionDraws& draws, const torch::Tensor& latents_nchw, const torch::Tensor& states_ntw) const;
  /// The same of samples as they are loaded, in float32.
  DiffusionInputs mix(const LoadedDiffusion& loaded) const;
  /// Draws on the CPU and mixes where the batch lies; no gradient is recorded. Waits for a device.
  DiffusionInputs prepare(const DiffusionBatch& batch) const;
  /// What each timestep's squared error counts, float32 (N): with SNR = abar / (1 - abar) and m = min(SNR, gamma), m / SNR for
  /// epsilon, m / (SNR + 1) for v, m for the clean latent; without min-SNR 1. On the CPU.
  torch::Tensor loss_weights(const torch::Tensor& timesteps_n) const;
  /// Loss of each sample (N): its mean squared error times its weight. Differentiable in the network's parameters.
  torch::Tensor losses(const ConditionalDenoiser& network, const DiffusionInputs& inputs) const;

 private:
  NoiseSchedule schedule_;
  DiffusionObjectiveOptions options_;
  torch::Tensor empty_states_tw_;
};

/// Epoch and key hash of some samples, int64 (N, 2) on the CPU (ops/counter_normal.h).
torch::Tensor coordinates_of(const std::vector<SampleCoordinates>& samples);

/// Pictures of some samples, float32 in [-1, 1], and their coordinates_of(), both where the network is.
struct PictureBatch {
  torch::Tensor coordinates_n2;
  torch::Tensor images_nchw;

  int64_t size() const { return images_nchw.size(0); }
  PictureBatch slice(int64_t first, int64_t count) const;
};

struct AutoencoderObjectiveOptions {
  uint64_t seed = 0;            ///< Of the posterior draws.
  double l1_weight = 1.0;       ///< Mean absolute error of the pixels.
  double mse_weight = 1.0;      ///< Mean squared error of the pixels.
  double log_mse_weight = 0.0;  ///< ln(MSE + 1e-4) of each picture: its mean falls as the mean PSNR rises, so easy pictures count, too.
  double kl_weight = 1e-6;      ///< KL divergence from N(0, I), summed over a sample's latent (Rombach et al. 2022).

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// An autoencoder as two functions.
struct AutoencoderNetwork {
  /// Pictures -> mean and log-variance of the posterior, each (N, C, h, w).
  std::function<std::pair<torch::Tensor, torch::Tensor>(const torch::Tensor& images_nchw)> encode;
  /// Latents (not scaled) -> pictures.
  std::function<torch::Tensor(const torch::Tensor& latents_nchw)> decode;
};

/// Reconstruction plus KL of a variational autoencoder (Kingma and Welling 2014). The posterior is drawn from CounterRandom
/// with Purpose::kPosterior. Thread safety: immutable.
class AutoencoderObjective {
 public:
  /// REQUIRES: options.validate() is ok.
  explicit AutoencoderObjective(const AutoencoderObjectiveOptions& options);

  /// Loss of each sample (N): l1_weight * L1 + mse_weight * MSE + log_mse_weight * ln(MSE + 1e-4) + kl_weight * KL. Differentiable.
  torch::Tensor losses(const AutoencoderNetwork& network, const PictureBatch& batch) const;

 private:
  AutoencoderObjectiveOptions options_;
};

}  // namespace darkroom
