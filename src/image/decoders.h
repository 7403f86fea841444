#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "darkroom/core/row_error.h"
#include "darkroom/image/image.h"
#include "darkroom/image/probe.h"

namespace darkroom {

/// Where a decoder puts its rows, from the top to the bottom.
class RowSink {
 public:
  virtual ~RowSink() = default;
  /// Memory for row y: width RGB pixels. Asked once a row; the rows before y are complete then. May not throw.
  virtual uint8_t* row_at(int y) = 0;
};

/// Decoders of one format each. `header` is what probe_image found in the same bytes; its size is within the limits.
RowResult<Image> decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header);
RowResult<Image> decode_png(std::span<const std::byte> bytes, const ImageHeader& header);
RowResult<Image> decode_webp(std::span<const std::byte> bytes, const ImageHeader& header);

/// decode_jpeg without memory for the picture. On an error the rows that came are worth nothing.
std::optional<RowError> decode_jpeg_rows(std::span<const std::byte> bytes, const ImageHeader& header, RowSink& sink);

}  // namespace darkroom
