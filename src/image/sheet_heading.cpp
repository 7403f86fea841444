#include "darkroom/image/sheet_heading.h"

#include <algorithm>

#include "darkroom/image/contact_sheet.h"
#include "draw_text.h"
#include "font_table.h"
#include "text_layout.h"

namespace darkroom {

Image with_heading(const Image& sheet, std::string_view text) {
  constexpr int kEdge = 8;  // As around the sheet itself, which begins with as much.
  const ContactSheetOptions look;
  const auto columns = static_cast<size_t>(std::max((sheet.width - 2 * kEdge) / kGlyphWidth, 1));
  const auto lines = wrap_text(printable_characters(text), columns, kMostHeadingLines);
  if (lines.empty()) {
    return sheet;
  }
  const int top = kEdge + static_cast<int>(lines.size()) * kGlyphHeight;
  Image headed = Image::filled(sheet.width, top + sheet.height, 3, look.background[0]);
  for (size_t line = 0; line < lines.size(); ++line) {
    draw_code_points(headed, kEdge, kEdge + static_cast<int>(line) * kGlyphHeight, lines[line], look.text_colour);
  }
  for (int y = 0; y < sheet.height; ++y) {
    std::copy_n(sheet.row(y), static_cast<size_t>(sheet.width) * 3, headed.row(top + y));
  }
  return headed;
}

}  // namespace darkroom
