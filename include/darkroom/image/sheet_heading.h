#pragma once

#include <string_view>

#include "darkroom/image/image.h"

namespace darkroom {

/// Lines that a heading may have; what does not fit ends in "...".
inline constexpr int kMostHeadingLines = 4;

/// An RGB sheet (contact_sheet.h) with a text above it, dark on white, wrapped at spaces over the sheet's width. An empty text changes
/// nothing. Thread safety: pure.
Image with_heading(const Image& sheet, std::string_view text);

}  // namespace darkroom
