#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "darkroom/core/row_error.h"
#include "darkroom/image/probe.h"

namespace darkroom {

/// Rows first, first + 1, ..., end - 1 of a picture.
struct PixelRows {
  int first = 0;
  int end = 0;
};

/// Where a decoder puts the rows that somebody wants, from the top to the bottom.
class RowSink {
 public:
  virtual ~RowSink() = default;
  /// Within the picture, and not empty.
  virtual PixelRows wanted_rows() const = 0;
  /// Memory for row y: width RGB pixels. Asked once a wanted row; the rows before y are complete then. May not throw.
  virtual uint8_t* row_at(int y) = 0;
};

/// What becomes of picture data that are damaged, yet can be read.
enum class Damage : uint8_t {
  kAsPillow,  ///< Decoded as Pillow does, which shows what libjpeg makes of bad codes and missing blocks.
  kRefused,   ///< kTruncated where the blocks of a JPEG end too early, kDecodeFailed where its codes are bad.
};

/// Decoders of one format each, without memory for the whole picture where the format allows that. `header` is what probe_image found in
/// the same bytes; its size is within the limits. A row that is not wanted costs as little as noticing damage in it allows: errors
/// never depend on what is wanted. On an error the rows that came are worth nothing.
std::optional<RowError> decode_jpeg_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink, Damage damage);
std::optional<RowError> decode_png_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink);
std::optional<RowError> decode_webp_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink);
/// That of the header's format.
std::optional<RowError> decode_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink,
                                    Damage damage = Damage::kAsPillow);

}  // namespace darkroom
