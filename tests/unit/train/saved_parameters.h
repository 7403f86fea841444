#pragma once

#include <string>
#include <vector>

#include "darkroom/files/file_system.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

/// Writes parameters as a component's weights lie in a checkpoint.
inline Status save_parameters(FileSystem& files, const std::string& folder, const FlatParameters& parameters) {
  DARKROOM_RETURN_IF_ERROR(files.create_folders(folder));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, view] : parameters.named_views(parameters.values())) {
    tensors.push_back({name, view.detach()});
  }
  return write_safetensors(files, folder + "/diffusion_pytorch_model.safetensors", tensors);
}

}  // namespace darkroom
