#pragma once

#include <cstddef>
#include <span>

#include "darkroom/image/probe.h"

namespace darkroom {

/// What a pixel takes at most while a picture is decoded, that of the whole picture which resize_to keeps included (docs/sandbox.md).
inline constexpr size_t kMostDecodingBytesPerPixel = 11;

/// What PictureDecoder::check and transform take for a picture, a few megabytes besides: nothing where its rows come one after the other,
/// else what its decoder holds of it as a whole. `header` is what probe_image found in `bytes`. Thread safety: pure.
size_t decoding_bytes(std::span<const std::byte> bytes, const ImageHeader& header);

}  // namespace darkroom
