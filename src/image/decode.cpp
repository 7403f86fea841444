#include "darkroom/image/decode.h"

#include "darkroom/core/check.h"
#include "decoders.h"

namespace darkroom {
namespace {

RowResult<Image> decode_by_format(std::span<const std::byte> bytes, const ImageHeader& header) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return decode_jpeg(bytes, header);
    case ImageFormat::kPng:
      return decode_png(bytes, header);
    case ImageFormat::kWebp:
      return decode_webp(bytes, header);
    case ImageFormat::kGif:
    case ImageFormat::kAvif:
      break;
  }
  DARKROOM_CHECK(false, "the probe let through a format that has no decoder:", mime_type(header.format));
}

}  // namespace

RowResult<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits, Orientation orientation) {
  const RowResult<ImageHeader> header = probe_image(bytes, limits);
  if (!header.is_ok()) {
    return header.error();
  }
  RowResult<Image> image = decode_by_format(bytes, *header);
  if (image.is_ok() && orientation == Orientation::kApply) {
    return apply_orientation(*std::move(image), read_orientation(bytes));
  }
  return image;
}

}  // namespace darkroom
