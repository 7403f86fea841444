#pragma once

#include <torch/torch.h>

namespace darkroom {

/// Euclidean norm of a flat float32 or bfloat16 buffer: the root of ops' squared_norm. Waits for the device.
double flat_norm(const torch::Tensor& flat);

/// What to multiply gradients of norm `norm` by so that their norm is at most `max_norm`: max_norm / (norm + 1e-6), at most 1,
/// as torch.nn.utils.clip_grad_norm_. A `max_norm` of 0 means no clipping: 1.
double clip_coefficient(double norm, double max_norm);

}  // namespace darkroom
