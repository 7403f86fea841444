#pragma once

#include <torch/torch.h>

#include "darkroom/core/result.h"
#include "darkroom/image/image.h"
#include "darkroom/nn/vae.h"

namespace darkroom {

/// The picture that a row of a latents dataset stands for: scaled latents [C, h, w] are divided by the autoencoder's scaling
/// factor, moments [2C, h, w] are decoded at their mean, where the autoencoder lies. REQUIRES: float32 on the CPU.
/// Errors: kFailedPrecondition (latents of another autoencoder). Thread safety: one autoencoder, one thread.
Result<Image> decode_stored_latents(AutoencoderKL& vae, const torch::Tensor& stored_chw);

}  // namespace darkroom
