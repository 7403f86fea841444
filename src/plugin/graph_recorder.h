#pragma once

#include <memory>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {

/// A recorder on CUDA graphs (at::cuda::CUDAGraph) for one GPU.
std::unique_ptr<GraphRecorder> make_cuda_graph_recorder(int gpu);

}  // namespace darkroom
