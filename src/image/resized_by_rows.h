#pragma once

#include <cstddef>
#include <span>

#include "darkroom/image/probe.h"
#include "darkroom/image/transform.h"

namespace darkroom {

/// Whether a picture is resized while it is decoded, so that it is never held as a whole: where that gives the bits of resizing the whole.
bool is_resized_by_rows(std::span<const std::byte> bytes, const ImageHeader& header, const TransformOptions& options);

}  // namespace darkroom
