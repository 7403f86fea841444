#include "darkroom/image/picture_decoder.h"

#include <algorithm>

#include "darkroom/core/check.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/resample.h"

namespace darkroom {
namespace {

class InProcessDecoder : public PictureDecoder {
 public:
  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    return check_image(bytes, limits);
  }

  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    DARKROOM_CHECK(out_hwc.size() == square_bytes(options), "the output does not fit the square (want, got):", square_bytes(options),
                   out_hwc.size());
    const RowResult<TransformedPixels> pixels = transform_pixels(bytes, options, limits, draw);
    if (!pixels.is_ok()) {
      return RowResult<DecodedSize>(pixels.error());
    }
    std::ranges::copy(pixels->square.pixels, out_hwc.begin());
    return RowResult<DecodedSize>(DecodedSize{pixels->width, pixels->height});
  }

  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    DARKROOM_CHECK(out_hwc.size() == picture_bytes(size), "the output does not fit the size (want, got):", picture_bytes(size),
                   out_hwc.size());
    const RowResult<Image> image = decode_image(bytes, limits);
    if (!image.is_ok()) {
      return RowResult<DecodedSize>(image.error());
    }
    std::ranges::copy(resize(*image, size.width, size.height, Filter::kLanczos).pixels, out_hwc.begin());
    return RowResult<DecodedSize>(DecodedSize{image->width, image->height});
  }
};

}  // namespace

size_t square_bytes(const TransformOptions& options) {
  const auto side = static_cast<size_t>(options.resolution);
  return 3 * side * side;
}

size_t picture_bytes(const DecodedSize& size) {
  DARKROOM_CHECK(size.width >= 1 && size.height >= 1 && size.width <= kLargestSide && size.height <= kLargestSide,
                 "a size that no picture may have:", size.width, size.height);
  return size_t{3} * static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
}

std::unique_ptr<PictureDecoder> decoder_in_process() { return std::make_unique<InProcessDecoder>(); }

}  // namespace darkroom
