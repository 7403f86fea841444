#include "darkroom/image/decoding_memory.h"

#include "byte_view.h"
#include "jpeg_segments.h"

namespace darkroom {
namespace {

constexpr size_t kWebpPixelBytes = 8;        // RGBA, and what lossless data were unpacked to.
constexpr size_t kInterlacedPixelBytes = 3;  // The picture.
constexpr size_t kGrey16PixelBytes = 3 + 2;  // And its samples.
constexpr size_t kCoefficientBytes = 2;      // One per pixel and component.

// libjpeg keeps the coefficients of all components until the last scan has come.
size_t jpeg_pixel_bytes(ByteView bytes) {
  JpegSegments segments(bytes);
  size_t num_components = 0;
  bool is_progressive = false;
  JpegSegments::Step step = JpegSegments::Step::kSegment;
  while ((step = segments.next()) == JpegSegments::Step::kSegment) {
    if (is_start_of_frame(segments.marker()) && segments.body_bytes() >= 6) {
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

}  // namespace

size_t decoding_bytes(std::span<const std::byte> bytes, const ImageHeader& header) {
  return pixel_bytes(ByteView(bytes), header.format) * static_cast<size_t>(header.width) * static_cast<size_t>(header.height);
}

}  // namespace darkroom
