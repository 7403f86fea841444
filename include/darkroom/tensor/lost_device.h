#pragma once

#include <exception>
#include <functional>

#include "darkroom/tensor/device_runtime.h"

namespace darkroom {

/// Told once something has failed and the GPU does nothing any more in this process (an illegal access ends CUDA in it for good): what it
/// says. Any thread may tell; several may.
using DeviceLost = std::function<void(const Status& why)>;

/// What `work` returns. Where it throws, the device is tried; `lost`, which may be empty, is told of one that is, and the exception goes
/// on.
template <typename Work>
auto telling_of_lost_device(const torch::Device& device, const DeviceLost& lost, const Work& work) {
  try {
    return work();
  } catch (const std::exception&) {
    if (const Status tried = try_device(device); !tried.is_ok() && lost != nullptr) {
      lost(tried);
    }
    throw;
  }
}

}  // namespace darkroom
