#pragma once

#include <cstddef>
#include <span>

#include "darkroom/image/probe.h"
#include "darkroom/image/transform.h"

namespace darkroom {

/// What a pixel takes at most while a picture is decoded, that of the whole picture which resize_to keeps included (docs/sandbox.md).
inline constexpr size_t kMostDecodingBytesPerPixel = 12;

// What the calls of PictureDecoder take for a picture, a few megabytes besides. `header` is what probe_image found in `bytes`. Thread
// safety: pure.
/// check: nothing where its rows come one after the other, else what its decoder holds of it as a whole.
size_t decoding_bytes(std::span<const std::byte> bytes, const ImageHeader& header);
/// transform: that, and the picture itself where it cannot be resized row by row, because it is narrow and high or has to be turned.
size_t transforming_bytes(std::span<const std::byte> bytes, const ImageHeader& header, const TransformOptions& options);
/// resize_to: that, and the picture itself.
size_t resizing_bytes(std::span<const std::byte> bytes, const ImageHeader& header);

}  // namespace darkroom
