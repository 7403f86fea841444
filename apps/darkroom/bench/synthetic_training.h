#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/nn/unet.h"
#include "darkroom/optim/objective.h"
#include "darkroom/optim/train_step.h"

namespace darkroom {

struct SyntheticTrainingOptions {
  torch::Device device = torch::kCPU;
  torch::ScalarType type = torch::kFloat32;  ///< Compute type.
  bool replays = false;                      ///< On a GPU: replay recorded passes and updates, as `train` does.
  int64_t batch_size = 8;
  int64_t num_samples = 8;  ///< Of the dataset, taken in turn; a multiple of batch_size.
  int64_t side = 8;         ///< Of the latents.
  uint64_t seed = 0;
  double learning_rate = 1e-4;
};

/// A training run of a U-Net on random latents and text states: all that `train` does between its reader and its log, with the
/// dataset on the device. The same options give the same dataset and draws on every device and in every type. Thread safety: none.
class SyntheticTraining {
 public:
  /// Takes the network's parameters over (FlatParameters). REQUIRES: they are on the CPU in float32.
  SyntheticTraining(UNet2DConditionModel unet, const NoiseScheduleConfig& noise, const SyntheticTrainingOptions& options);

  /// One step. Errors: those of TrainStep.
  Result<StepReport> step();
  /// One step that waits for the device between its phases, without graphs.
  Result<StepReport> step_by_phases();

  UNet2DConditionModel& unet() { return unet_; }
  const FlatParameters& parameters() const { return flat_; }
  /// Latents, timesteps and text states of the present batch.
  const torch::Tensor& latents_nchw() const { return loaded_.latents_nchw; }
  const torch::Tensor& timesteps_n() const { return loaded_.draws.timesteps_n; }
  const torch::Tensor& states_ntw() const { return loaded_.states_ntw; }

 private:
  TrainStepOptions step_options(bool waits_between_phases) const;
  void load_batch();
  DeviceBatch batch();

  SyntheticTrainingOptions options_;
  UNet2DConditionModel unet_;
  FlatParameters flat_;
  AdamW adamw_{flat_, {}};
  Ema ema_{flat_, {}};
  torch::Tensor all_latents_nchw_, all_states_ntw_;
  DiffusionObjective objective_;
  LoadedDiffusion loaded_;  // The present batch.
  TrainStep step_, step_by_phases_;
};

}  // namespace darkroom
