#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/core/random.h"

namespace darkroom {

/// Standard normal float32 of `shape` = (N, ...) on the device of `coordinates_n2`: row n holds draws 0, 1, ... of CounterRandom(seed,
/// purpose, epoch, key hash) with coordinates_n2, int64 [N, 2], = (epoch, key hash as a signed number). The same bits on every
/// device (docs/formats/randomness.md). A pure function of its arguments, without the device's generator and without waiting for it, so a
/// replayed graph draws anew when the coordinates have changed. REQUIRES: 0 <= epoch < 2^24. Thread safety: any thread.
torch::Tensor counter_normal(uint64_t seed, Purpose purpose, const torch::Tensor& coordinates_n2, at::IntArrayRef shape);

}  // namespace darkroom
