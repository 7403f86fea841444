#pragma once

#include <string_view>

#include "darkroom/image/contact_sheet.h"

namespace darkroom {

/// draw_text for text that is decoded already.
void draw_code_points(Image& image, int left, int top, std::u32string_view text, Rgb colour);

}  // namespace darkroom
