#include "darkroom/paint/pictures.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {

std::vector<Image> to_images(const torch::Tensor& images_nchw) {
  const torch::NoGradGuard no_grad;
  DARKROOM_CHECK(images_nchw.dim() == 4 && images_nchw.size(1) == 3, "pictures are (N, 3, H, W), got dimensions:", images_nchw.dim());
  const torch::Tensor shares_nchw = (images_nchw.to(torch::kFloat32) * 0.5 + 0.5).nan_to_num(0.0).clamp(0.0, 1.0);
  const torch::Tensor bytes_nhwc = (shares_nchw * 255.0).round().to(torch::kUInt8).permute({0, 2, 3, 1}).contiguous().cpu();
  std::vector<Image> images;
  for (int64_t n = 0; n < bytes_nhwc.size(0); ++n) {
    Image image = Image::filled(static_cast<int>(bytes_nhwc.size(2)), static_cast<int>(bytes_nhwc.size(1)), 3);
    const uint8_t* pixels = bytes_nhwc[n].data_ptr<uint8_t>();
    std::copy(pixels, pixels + image.pixels.size(), image.pixels.begin());
    images.push_back(std::move(image));
  }
  return images;
}

int64_t count_not_finite(const torch::Tensor& pictures_nchw) {
  const torch::NoGradGuard no_grad;
  return pictures_nchw.size(0) - torch::isfinite(pictures_nchw).flatten(1).all(1).sum().item<int64_t>();
}

}  // namespace darkroom
