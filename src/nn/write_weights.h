#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

/// Writes tensors into one new safetensors file, one at a time; `tensor` gives the one of a name, in its spec's type and shape. On
/// failure no file is left. Errors: those of the file system and of SafetensorsWriter.
Status write_weights(FileSystem& files, const std::string& path, std::vector<TensorSpec> specs,
                     const std::function<torch::Tensor(const std::string& name)>& tensor);

}  // namespace darkroom
