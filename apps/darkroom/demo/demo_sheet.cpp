#include "demo_sheet.h"

#include <algorithm>
#include <array>

#include "darkroom/core/check.h"
#include "darkroom/image/contact_sheet.h"

namespace darkroom {
namespace {

constexpr size_t kColumns = 8;
constexpr int kCellSide = 128;  // Twice the pictures' size.
constexpr int kMargin = 8;
constexpr Rgb kBackground = {242, 244, 247};
constexpr Rgb kText = {32, 36, 44};

Image draw_band(std::span<const SheetRow> rows, size_t first, size_t count) {
  ContactSheetOptions options{.cell_width = kCellSide, .cell_height = kCellSide, .background = kBackground, .text_colour = kText};
  for (const std::string& prompt : sheet_prompts().subspan(first, count)) {
    options.column_titles.push_back(prompt);
  }
  std::vector<std::vector<ContactSheetCell>> cells;
  for (const SheetRow& row : rows) {
    options.row_titles.push_back(row.title);
    cells.emplace_back();
    for (size_t i = first; i < first + count; ++i) {
      cells.back().push_back({row.pictures[i], ""});
    }
  }
  return render_contact_sheet(cells, options);
}

void paste(Image& sheet, const Image& band, int top) {
  for (int y = 0; y < band.height; ++y) {
    std::copy_n(band.row(y), band.row_bytes(), sheet.row(top + y));
  }
}

}  // namespace

std::span<const std::string> sheet_prompts() {
  static const std::array<std::string, 16> kPrompts = {
      "grinning face", "cat face",  "penguin",    "frog",       "sunflower",   "rainbow",     "red heart",    "rocket",
      "pizza",         "hamburger", "strawberry", "watermelon", "soccer ball", "flag: Japan", "flag: Brazil", "keycap: 5"};
  return kPrompts;
}

Image draw_demo_sheet(std::span<const std::string> heading, std::span<const SheetRow> rows) {
  const size_t num_prompts = sheet_prompts().size();
  std::vector<Image> bands;
  int width = 0;
  int height = kMargin + static_cast<int>(heading.size()) * (text_line_height() + 2) + kMargin;
  const int first_top = height;
  for (const SheetRow& row : rows) {
    DARKROOM_CHECK(row.pictures.size() == num_prompts, "a row of the sheet lacks pictures (row, pictures):", row.title,
                   row.pictures.size());
  }
  for (size_t first = 0; first < num_prompts; first += kColumns) {
    bands.push_back(draw_band(rows, first, std::min(kColumns, num_prompts - first)));
    width = std::max(width, bands.back().width);
    height += bands.back().height;
  }
  Image sheet = Image::filled(width, height, 3);
  for (size_t i = 0; i < sheet.pixels.size(); ++i) {
    sheet.pixels[i] = kBackground[i % 3];
  }
  int line_top = kMargin;
  for (const std::string& line : heading) {
    draw_text(sheet, kMargin, line_top, line, kText);
    line_top += text_line_height() + 2;
  }
  int top = first_top;
  for (const Image& band : bands) {
    paste(sheet, band, top);
    top += band.height;
  }
  return sheet;
}

}  // namespace darkroom
