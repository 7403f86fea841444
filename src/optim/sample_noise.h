#pragma once

#include <torch/torch.h>

#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/optim/objective.h"

namespace darkroom {

/// Standard normal float32 of `shape` = (N, ...): row n holds draws 0, 1, ... of sample n's generator for `purpose`.
torch::Tensor sample_noise(uint64_t seed, Purpose purpose, const std::vector<SampleCoordinates>& samples, at::IntArrayRef shape);

}  // namespace darkroom
