#include "darkroom/image/decode.h"

#include <vector>

#include "darkroom/core/check.h"
#include "decoders.h"

namespace darkroom {
namespace {

/// A sink for all rows.
class WholeImage : public RowSink {
 public:
  explicit WholeImage(const ImageHeader& header) : image(Image::filled(header.width, header.height, 3)) {}
  PixelRows wanted_rows() const override { return {0, image.height}; }
  uint8_t* row_at(int y) override { return image.row(y); }

  Image image;
};

/// A sink that keeps no row, and wants the last alone: a decoder parses what comes before, and makes no pixels of it where it can.
class DiscardedRows : public RowSink {
 public:
  explicit DiscardedRows(const ImageHeader& header) : height_(header.height), row_(static_cast<size_t>(header.width) * 3) {}
  PixelRows wanted_rows() const override { return {height_ - 1, height_}; }
  uint8_t* row_at(int) override { return row_.data(); }

 private:
  int height_;
  std::vector<uint8_t> row_;
};

}  // namespace

std::optional<RowError> decode_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink, Damage damage) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return decode_jpeg_rows(bytes, header, sink, damage);
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

RowResult<ImageHeader> check_image(std::span<const std::byte> bytes, const ImageLimits& limits) {
  RowResult<ImageHeader> header = probe_image(bytes, limits);
  if (header.is_ok()) {
    DiscardedRows rows(*header);
    if (auto error = decode_rows(bytes, *header, rows, Damage::kRefused)) {
      return *std::move(error);
    }
  }
  return header;
}

}  // namespace darkroom
