#pragma once

#include <torch/torch.h>

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

/// Writes tensors into one new safetensors file, one at a time; `tensor` gives the one of a name, in its spec's shape. It is stored in its
/// spec's type. A stop request ends it between two of them. On failure no file is left. Errors: kFailedPrecondition (a finite value that
/// the type does not hold), kCancelled, those of the file system and of SafetensorsWriter.
Status write_weights(FileSystem& files, const std::string& path, std::vector<TensorSpec> specs,
                     const std::function<torch::Tensor(const std::string& name)>& tensor, const std::stop_token& stop);

}  // namespace darkroom
