#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/image/image.h"

namespace darkroom {

/// Decoded pictures as bytes, by the rule of diffusers' image processor: x/2 + 1/2 clamped to [0, 1], times 255, rounded half
/// to even. NaN becomes 0. Worked out in float32 where the pictures lie. REQUIRES: float (N, 3, H, W).
std::vector<Image> to_images(const torch::Tensor& images_nchw);

/// How many of some pictures, decoded or not, hold a NaN or an infinity. REQUIRES: float (N, ...).
int64_t count_not_finite(const torch::Tensor& pictures_nchw);

}  // namespace darkroom
