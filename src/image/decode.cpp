#include "darkroom/image/decode.h"

#include "darkroom/core/check.h"
#include "decoders.h"

namespace darkroom {
namespace {

/// A sink for all rows.
class WholeImage : public RowSink {
 public:
  explicit WholeImage(const ImageHeader& header) : image(Image::filled(header.width, header.height, 3)) {}
  RowRange wanted_rows() const override { return {0, image.height}; }
  uint8_t* row_at(int y) override { return image.row(y); }

  Image image;
};

}  // namespace

std::optional<RowError> decode_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return decode_jpeg_rows(bytes, header, sink);
    case ImageFormat::kPng:
      return decode_png_rows(bytes, header, sink);
    case ImageFormat::kWebp:
      return decode_webp_rows(bytes, header, sink);
    case ImageFormat::kGif:
    case ImageFormat::kAvif:
      break;
  }
  DARKROOM_CHECK(false, "the probe let through a format that has no decoder:", mime_type(header.format));
}

RowResult<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits, Orientation orientation) {
  const RowResult<ImageHeader> header = probe_image(bytes, limits);
  if (!header.is_ok()) {
    return header.error();
  }
  WholeImage whole(*header);
  if (auto error = decode_rows(bytes, *header, whole)) {
    return *std::move(error);
  }
  return orientation == Orientation::kApply ? apply_orientation(std::move(whole.image), read_orientation(bytes)) : std::move(whole.image);
}

}  // namespace darkroom
