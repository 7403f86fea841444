#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "darkroom/core/row_error.h"

namespace darkroom {

enum class ImageFormat : uint8_t { kJpeg, kPng, kWebp, kGif, kAvif };

/// What a file's header says. Orientation is not applied: these are the stored width and height.
struct ImageHeader {
  ImageFormat format = ImageFormat::kJpeg;
  int width = 0;
  int height = 0;
};

/// Which pictures are wanted, judged from the header alone.
struct ImageLimits {
  int min_size = 32;                 ///< The shorter side must have at least so many pixels.
  double max_aspect = 0;             ///< Longer side / shorter side at most; 0 switches the limit off.
  int64_t max_pixels = 100'000'000;  ///< width * height at most; more is a decompression bomb.
};

/// For pictures that somebody chose to keep: only bombs are refused.
inline constexpr ImageLimits kAnySize{.min_size = 1};

/// "image/jpeg", "image/png", "image/webp", "image/gif" or "image/avif".
std::string_view mime_type(ImageFormat format);

/// Tells the format by its magic bytes and reads width and height out of the header; decodes nothing, allocates nothing
/// and never reads outside `bytes`. `bytes` may be the beginning of a file as long as it holds the header.
/// Errors: kNotAnImage (no known magic bytes, an impossible header, or empty), kTruncated (the header is cut),
/// kUnsupportedFormat (GIF, AVIF, or a JPEG that is neither 8-bit nor of 1, 3 or 4 components), kBomb, kTooSmall, kBadAspect.
/// Thread safety: pure.
RowResult<ImageHeader> probe_image(std::span<const std::byte> bytes, const ImageLimits& limits);

}  // namespace darkroom
