#pragma once

#include <functional>
#include <string>

#include "darkroom/nn/model_folder.h"

namespace darkroom {

/// Tensors by the name of a parameter, in its shape.
using WeightsByName = std::function<torch::Tensor(const std::string& name)>;

/// Component folders as save_unet and save_vae (model_folder.h) write them, in float32, with other weights than the network's own: a
/// trainer's master weights. Errors: as theirs.
Status save_unet_weights(FileSystem& files, const UNet2DConditionModel& unet, const WeightsByName& weights,
                         const std::string& component_folder);
Status save_vae_weights(FileSystem& files, const AutoencoderKL& vae, const WeightsByName& weights, const std::string& component_folder);

}  // namespace darkroom
