#pragma once

#include <memory>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {

/// The plugin table's make_mark.
std::unique_ptr<GpuMark> make_cuda_mark(int gpu);

}  // namespace darkroom
