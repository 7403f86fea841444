#pragma once

#include <cstddef>
#include <span>

#include "darkroom/core/row_error.h"
#include "darkroom/image/image.h"
#include "darkroom/image/probe.h"

namespace darkroom {

// One function a format. Each gives RGB of exactly the header's size, or the row's error.
// REQUIRES: `header` is what probe_image says of `bytes`.
RowResult<Image> decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header);
RowResult<Image> decode_png(std::span<const std::byte> bytes, const ImageHeader& header);
RowResult<Image> decode_webp(std::span<const std::byte> bytes, const ImageHeader& header);

}  // namespace darkroom
