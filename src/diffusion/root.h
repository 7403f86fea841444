#pragma once

#include <torch/torch.h>

namespace darkroom {

/// The square root as torch computes it: its vector library does not always round correctly, and coefficients shall have the bits
/// that diffusers' tensors have.
inline float root(float value) { return torch::full({}, value, torch::kFloat32).sqrt().item<float>(); }

}  // namespace darkroom
