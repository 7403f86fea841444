#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/batches/batcher.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "darkroom/optim/objective.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/recipe.h"
#include "device_inputs.h"

namespace darkroom {

/// The network that a run trains, with its objective. Thread safety: none.
class TrainedPart {
 public:
  virtual ~TrainedPart() = default;
  /// Its folder in a model folder and in a checkpoint: "unet" or "vae".
  virtual std::string component() const = 0;
  virtual torch::nn::Module& module() = 0;
  /// Writes the config.json of its component folder.
  virtual Status save_config(FileSystem& files, const std::string& folder) const = 0;
  /// Takes a batch to the device, without waiting for it.
  virtual void load(const Batch& batch) = 0;
  /// The loaded batch as losses() takes it: tensors on the device whose first dimension are the samples.
  virtual std::vector<torch::Tensor> inputs() const = 0;
  /// Losses (n) of n samples from their inputs, differentiable: a function of these and the weights alone, so that a device can record it.
  /// Several threads may call it at once.
  virtual torch::Tensor losses(const std::vector<torch::Tensor>& inputs) const = 0;
  /// What the network saw of the loaded batch, for --trace: on the CPU.
  virtual std::vector<NamedTensor> traced_inputs() const = 0;
};

class UNetPart : public TrainedPart {
 public:
  /// The network moves to `device` by itself (FlatParameters); the objective's tensors are there.
  UNetPart(UNet2DConditionModel unet, DiffusionObjective objective, const torch::Device& device)
      : unet_(std::move(unet)), objective_(std::move(objective)), inputs_(device) {}
  std::string component() const override { return "unet"; }
  torch::nn::Module& module() override { return *unet_; }
  Status save_config(FileSystem& files, const std::string& folder) const override;
  void load(const Batch& batch) override;
  std::vector<torch::Tensor> inputs() const override;
  torch::Tensor losses(const std::vector<torch::Tensor>& inputs) const override;
  std::vector<NamedTensor> traced_inputs() const override;

  const UNet2DConditionModel& unet() const { return unet_; }
  const DiffusionObjective& objective() const { return objective_; }
  const torch::Device& device() const { return inputs_.device(); }

 private:
  UNet2DConditionModel unet_;
  DiffusionObjective objective_;
  DeviceInputs inputs_;
  LoadedDiffusion loaded_;
};

class VaePart : public TrainedPart {
 public:
  VaePart(AutoencoderKL vae, const AutoencoderObjective& objective, const torch::Device& device)
      : vae_(std::move(vae)), objective_(objective), inputs_(device) {}
  std::string component() const override { return "vae"; }
  torch::nn::Module& module() override { return *vae_; }
  Status save_config(FileSystem& files, const std::string& folder) const override;
  void load(const Batch& batch) override;
  std::vector<torch::Tensor> inputs() const override;
  torch::Tensor losses(const std::vector<torch::Tensor>& inputs) const override;
  std::vector<NamedTensor> traced_inputs() const override;

  const torch::Device& device() const { return inputs_.device(); }
  /// Decoded means of the posteriors of pictures on the device, float32.
  torch::Tensor reconstruct(const torch::Tensor& images_nchw) const;
  /// Of the loaded batch, on the device.
  const torch::Tensor& images_nchw() const { return loaded_.images_nchw; }

 private:
  AutoencoderKL vae_;
  AutoencoderObjective objective_;
  DeviceInputs inputs_;
  PictureBatch loaded_;
};

/// A batch as the diffusion objective takes it, on a device; waits for that. On the CPU tensors are shared.
DiffusionBatch diffusion_batch(const Batch& batch, const torch::Device& device);
/// The losses' network.
ConditionalDenoiser denoiser_of(const UNet2DConditionModel& unet);
AutoencoderNetwork network_of(const AutoencoderKL& vae);

/// The U-Net or VAE that a run starts from: the weights in `weights_folder` (a component folder) when it is not empty, else
/// as model.start says. Errors: those of loading; kFailedPrecondition when the weights are of another network than the
/// model folder's config.
Result<UNet2DConditionModel> make_starting_unet(FileSystem& files, const Recipe& recipe, const std::string& weights_folder);
Result<AutoencoderKL> make_starting_vae(FileSystem& files, const Recipe& recipe, const std::string& weights_folder);

/// The forward process of the recipe. Errors: kFailedPrecondition when the model folder's scheduler says otherwise, for
/// then nothing could paint with the result.
Result<NoiseScheduleConfig> make_noise_config(const Recipe& recipe);

}  // namespace darkroom
