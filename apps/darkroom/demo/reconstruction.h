#pragma once

#include <span>
#include <stop_token>

#include "darkroom/core/result.h"
#include "darkroom/image/image.h"
#include "darkroom/nn/vae.h"

namespace darkroom {

/// Mean over these rows of `pictures` of psnr_db between a picture and what the VAE makes of its posterior's mean, both 8-bit
/// RGB; 0 without rows. REQUIRES: rows below pictures.size(); pictures of one size that the VAE takes. Errors: kCancelled.
Result<double> mean_reconstruction_psnr_db(AutoencoderKL vae, std::span<const Image> pictures, std::span<const size_t> rows,
                                           const std::stop_token& stop);

}  // namespace darkroom
