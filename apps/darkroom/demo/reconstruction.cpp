#include "reconstruction.h"

#include <algorithm>
#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/image/transform.h"
#include "darkroom/paint/pictures.h"

namespace darkroom {
namespace {

constexpr size_t kPicturesACall = 16;  // Pictures a call of the VAE.
constexpr double kEqualDb = 100.0;

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

double psnr_db(const Image& a, const Image& b) {
  DARKROOM_CHECK(a.pixels.size() == b.pixels.size() && !a.pixels.empty(), "pictures of different sizes are compared:", a.pixels.size(),
                 b.pixels.size());
  int64_t sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    const int difference = int{a.pixels[i]} - int{b.pixels[i]};
    sum += difference * difference;
  }
  const double mean = static_cast<double>(sum) / static_cast<double>(a.pixels.size());
  return sum == 0 ? kEqualDb : std::min(kEqualDb, 10.0 * std::log10(255.0 * 255.0 / mean));
}

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
