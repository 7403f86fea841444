#pragma once

#include <torch/torch.h>

#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/optim/objective.h"

namespace darkroom {

/// Samples as counter_normal takes them: int64 [N, 2].
torch::Tensor noise_coordinates(const std::vector<SampleCoordinates>& samples);

/// Standard normal float32 of `shape` = (N, ...): row n holds draws 0, 1, ... of sample n's generator for `purpose`.
torch::Tensor sample_noise(uint64_t seed, Purpose purpose, const std::vector<SampleCoordinates>& samples, at::IntArrayRef shape);

}  // namespace darkroom
