#include "darkroom/image/decoding_memory.h"

#include <algorithm>

#include "byte_view.h"
#include "darkroom/image/decode.h"
#include "jpeg_segments.h"
#include "resized_by_rows.h"

namespace darkroom {
namespace {

constexpr size_t kWebpPixelBytes = 9;        // RGBA, what lossless data were unpacked to, and a plane of alpha.
constexpr size_t kInterlacedPixelBytes = 3;  // The picture.
constexpr size_t kGrey16PixelBytes = 3 + 2;  // And its samples.
constexpr size_t kPictureBytes = 3;          // Of one that is kept whole.
constexpr size_t kCoefficientBytes = 2;      // One per pixel and component.

// libjpeg keeps the coefficients of all components until the last scan has come.
size_t jpeg_pixel_bytes(ByteView bytes) {
  JpegSegments segments(bytes);
  size_t num_components = 0;
  bool is_progressive = false;
  JpegSegments::Step step = JpegSegments::Step::kSegment;
  while ((step = segments.next()) == JpegSegments::Step::kSegment) {
    if (num_components == 0 && is_start_of_frame(segments.marker()) && segments.body_bytes() >= 6) {  // The probe's.
      num_components = bytes.u8(segments.body_offset() + 5);
      is_progressive = segments.marker() == 0xC2 || segments.marker() == 0xCA;
    }
  }
  if (step != JpegSegments::Step::kScan || !bytes.covers(segments.body_offset(), 1)) {
    return 0;  // No scan: nothing is decoded.
  }
  const bool has_several_scans = is_progressive || bytes.u8(segments.body_offset()) < num_components;
  return has_several_scans ? kCoefficientBytes * num_components : 0;
}

// REQUIRES: the probe took the header.
size_t png_pixel_bytes(ByteView bytes) {
  const bool is_grey16 = bytes.u8(24) == 16 && bytes.u8(25) == 0;
  const bool is_interlaced = bytes.u8(28) != 0;
  return is_grey16 ? kGrey16PixelBytes : is_interlaced ? kInterlacedPixelBytes : 0;
}

size_t pixel_bytes(ByteView bytes, ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return jpeg_pixel_bytes(bytes);
    case ImageFormat::kPng:
      return png_pixel_bytes(bytes);
    case ImageFormat::kWebp:
      return kWebpPixelBytes;
    case ImageFormat::kGif:
    case ImageFormat::kAvif:
      break;
  }
  return 0;  // Nothing decodes them.
}

size_t num_pixels(const ImageHeader& header) { return static_cast<size_t>(header.width) * static_cast<size_t>(header.height); }

}  // namespace

size_t decoding_bytes(std::span<const std::byte> bytes, const ImageHeader& header) {
  return pixel_bytes(ByteView(bytes), header.format) * num_pixels(header);
}

size_t transforming_bytes(std::span<const std::byte> bytes, const ImageHeader& header, const TransformOptions& options) {
  if (is_resized_by_rows(bytes, header, options)) {
    return decoding_bytes(bytes, header);
  }
  // The picture, and turned, when its decoder is gone, once more.
  const bool is_turned = options.orientation == Orientation::kApply && read_orientation(bytes) != 1;
  return std::max(decoding_bytes(bytes, header) + kPictureBytes * num_pixels(header),
                  is_turned ? 2 * kPictureBytes * num_pixels(header) : 0);
}

size_t resizing_bytes(std::span<const std::byte> bytes, const ImageHeader& header) {
  return decoding_bytes(bytes, header) + kPictureBytes * num_pixels(header);
}

}  // namespace darkroom
