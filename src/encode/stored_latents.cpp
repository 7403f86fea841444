#include "darkroom/encode/stored_latents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>

#include "darkroom/image/transform.h"
#include "darkroom/nn/placement.h"

namespace darkroom {

Result<Image> decode_stored_latents(AutoencoderKL& vae, const torch::Tensor& stored_chw) {
  const int64_t num_channels = vae->config().latent_channels;
  const bool is_moments = stored_chw.dim() == 3 && stored_chw.size(0) == 2 * num_channels;
  if (stored_chw.dim() != 3 || (stored_chw.size(0) != num_channels && !is_moments)) {
    return Status::failed_precondition("the model's vae does not fit the latents (want channels, latents):", num_channels,
                                       fmt::format("[{}]", fmt::join(stored_chw.sizes(), ", ")));
  }
  const torch::NoGradGuard no_gradients;
  const torch::Tensor latents_chw = is_moments ? stored_chw.slice(0, 0, num_channels) : stored_chw / vae->config().scaling_factor;
  const NetworkPlace place = place_of(*vae);
  const torch::Tensor decoded_nchw = vae->decode(latents_chw.unsqueeze(0).to(place.device, place.type));
  const torch::Tensor image_nchw = decoded_nchw.to(torch::kCPU, torch::kFloat32).contiguous();
  return denormalise_chw({image_nchw.const_data_ptr<float>(), static_cast<size_t>(image_nchw.numel())},
                         static_cast<int>(image_nchw.size(3)), static_cast<int>(image_nchw.size(2)), static_cast<int>(image_nchw.size(1)));
}

}  // namespace darkroom
