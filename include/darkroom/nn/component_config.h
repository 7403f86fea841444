#pragma once

#include <string>

#include "darkroom/nn/model_folder.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

// What a component folder holds besides tensors, for a trainer that writes these itself.

/// The file of a U-Net's or VAE's weights in its folder.
inline constexpr const char* kComponentWeightsFile = "diffusion_pytorch_model.safetensors";
/// Of a file of weights: transformers refuses one whose metadata does not name its framework.
SafetensorsMetadata weights_metadata();

/// Writes config.json as save_unet and save_vae (model_folder.h) do. Errors: those of the file system.
Status save_config(FileSystem& files, const UNet2DConditionModel& unet, const std::string& component_folder);
Status save_config(FileSystem& files, const AutoencoderKL& vae, const std::string& component_folder);

}  // namespace darkroom
