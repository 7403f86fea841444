#include "reconstruction.h"

#include <algorithm>

#include "darkroom/image/transform.h"
#include "darkroom/measure/picture_distance.h"
#include "darkroom/paint/pictures.h"

namespace darkroom {
namespace {

constexpr size_t kPicturesACall = 16;  // Pictures a call of the VAE.

torch::Tensor as_tensor(std::span<const Image> pictures) {
  const Image& first = pictures.front();
  torch::Tensor images_nchw = torch::empty({static_cast<int64_t>(pictures.size()), 3, first.height, first.width}, torch::kFloat32);
  for (size_t i = 0; i < pictures.size(); ++i) {
    torch::Tensor image_chw = images_nchw[static_cast<int64_t>(i)];
    normalise_chw(pictures[i], {image_chw.data_ptr<float>(), static_cast<size_t>(image_chw.numel())});
  }
  return images_nchw;
}

}  // namespace

Result<double> mean_reconstruction_psnr_db(AutoencoderKL vae, std::span<const Image> pictures, std::span<const size_t> rows,
                                           const std::stop_token& stop) {
  const torch::NoGradGuard no_grad;
  double sum = 0;
  for (size_t first = 0; first < rows.size(); first += kPicturesACall) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped on request while measuring the VAE");
    }
    const auto batch_rows = rows.subspan(first, std::min(kPicturesACall, rows.size() - first));
    std::vector<Image> batch;
    for (const size_t row : batch_rows) {
      batch.push_back(pictures[row]);
    }
    const std::vector<Image> reconstructed = to_images(vae->decode(vae->encode(as_tensor(batch)).mean));
    for (size_t i = 0; i < batch.size(); ++i) {
      sum += psnr_db(batch[i], reconstructed[i]);
    }
  }
  return rows.empty() ? 0.0 : sum / static_cast<double>(rows.size());
}

}  // namespace darkroom
