#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/batcher.h"
#include "darkroom/files/file_system.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "darkroom/optim/objective.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

/// The network that a run trains, with its objective. Thread safety: none.
class TrainedPart {
 public:
  virtual ~TrainedPart() = default;
  /// Its folder in a model folder and in a checkpoint: "unet" or "vae".
  virtual std::string component() const = 0;
  virtual torch::nn::Module& module() = 0;
  /// Writes the present weights as a component folder.
  virtual Status save(FileSystem& files, const std::string& folder) const = 0;
  /// Losses [count] of samples [first, first + count) of a batch, differentiable.
  virtual torch::Tensor losses(const Batch& batch, int64_t first, int64_t count) const = 0;
  /// What the network saw of a batch, for --trace.
  virtual std::vector<NamedTensor> traced_inputs(const Batch& batch) const = 0;
};

class UNetPart : public TrainedPart {
 public:
  UNetPart(UNet2DConditionModel unet, DiffusionObjective objective) : unet_(std::move(unet)), objective_(std::move(objective)) {}
  std::string component() const override { return "unet"; }
  torch::nn::Module& module() override { return *unet_; }
  Status save(FileSystem& files, const std::string& folder) const override;
  torch::Tensor losses(const Batch& batch, int64_t first, int64_t count) const override;
  std::vector<NamedTensor> traced_inputs(const Batch& batch) const override;

  const UNet2DConditionModel& unet() const { return unet_; }
  const DiffusionObjective& objective() const { return objective_; }

 private:
  UNet2DConditionModel unet_;
  DiffusionObjective objective_;
};

class VaePart : public TrainedPart {
 public:
  VaePart(AutoencoderKL vae, const AutoencoderObjective& objective) : vae_(std::move(vae)), objective_(objective) {}
  std::string component() const override { return "vae"; }
  torch::nn::Module& module() override { return *vae_; }
  Status save(FileSystem& files, const std::string& folder) const override;
  torch::Tensor losses(const Batch& batch, int64_t first, int64_t count) const override;
  std::vector<NamedTensor> traced_inputs(const Batch& batch) const override;

  const AutoencoderKL& vae() const { return vae_; }

 private:
  AutoencoderKL vae_;
  AutoencoderObjective objective_;
};

/// A batch as the diffusion objective takes it; tensors are shared.
DiffusionBatch diffusion_batch(const Batch& batch);
/// The losses' network.
ConditionalDenoiser denoiser_of(const UNet2DConditionModel& unet);

/// The U-Net or VAE that a run starts from: the weights in `weights_folder` (a component folder) when it is not empty, else
/// as model.start says. Errors: those of loading; kFailedPrecondition when the weights are of another network than the
/// model folder's config.
Result<UNet2DConditionModel> make_starting_unet(FileSystem& files, const Recipe& recipe, const std::string& weights_folder);
Result<AutoencoderKL> make_starting_vae(FileSystem& files, const Recipe& recipe, const std::string& weights_folder);

/// The forward process of the recipe. Errors: kFailedPrecondition when the model folder's scheduler says otherwise, for
/// then nothing could paint with the result.
Result<NoiseScheduleConfig> make_noise_config(const Recipe& recipe);

}  // namespace darkroom
