#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/status.h"

namespace darkroom {

/// One component of a model and the tensors to run it on.
struct ComponentRun {
  std::string model;       ///< Model folder, single file, or the component's own folder.
  std::string component;   ///< One of component_names().
  std::string inputs;      ///< safetensors file to read.
  std::string output;      ///< safetensors file to write; replaced when it is there.
  bool gradients = false;  ///< Also every gradient, from the cotangents among the inputs.
  bool packed = false;     ///< With its weights packed first (packing.h), as painting runs a U-Net on the CPU.
  int threads = 1;         ///< Inside an operation.
};

/// "unet", "vae_encoder", "vae_decoder", "text_encoder", "text_encoder_2".
const std::vector<std::string>& component_names();

/// Runs one component on given tensors and writes its outputs and, when asked, every gradient (names: docs/nn.md).
/// A stop request ends it between loading, the forward pass, the backward pass and writing.
/// Errors: kInvalidArgument (no such component, gradients of a packed one), kNotFound (folder, file or tensor), kFailedPrecondition
/// (tensors that do not fit the model), kCancelled (nothing was written), those of the files.
Status run_component(const ComponentRun& run, const std::stop_token& stop = {});

}  // namespace darkroom
