#include "demo_sheet.h"

#include <algorithm>
#include <array>

#include "darkroom/core/check.h"
#include "darkroom/image/contact_sheet.h"

namespace darkroom {
namespace {

constexpr int kCellSide = 128;  // Twice the pictures' size.
constexpr int kMargin = 8;
constexpr Rgb kBackground = {242, 244, 247};
constexpr Rgb kText = {32, 36, 44};

int line_height() { return text_line_height() + 2; }

Image draw_band(const SheetBand& band) {
  ContactSheetOptions options{.cell_width = kCellSide, .cell_height = kCellSide, .background = kBackground, .text_colour = kText};
  std::vector<std::vector<ContactSheetCell>> cells;
  for (const SheetRow& row : band.rows) {
    DARKROOM_CHECK(row.pictures.size() == band.prompts.size(), "a row of the sheet lacks pictures (row, pictures):", row.title,
                   row.pictures.size());
    options.row_titles.push_back(row.title);
    const bool is_first = cells.empty();
    cells.emplace_back();
    for (size_t i = 0; i < row.pictures.size(); ++i) {
      cells.back().push_back({row.pictures[i], is_first ? band.prompts[i] : ""});
    }
  }
  return render_contact_sheet(cells, options);
}

int draw_lines(Image& sheet, std::span<const std::string> lines, int top) {
  for (const std::string& line : lines) {
    draw_text(sheet, kMargin, top, line, kText);
    top += line_height();
  }
  return top;
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

std::span<const std::string> held_out_sheet_prompts() {
  static const std::array<std::string, 8> kPrompts = {
      "thumbs up: dark skin tone", "raised hand: medium skin tone", "foot: medium-dark skin tone", "astronaut: light skin tone",
      "ninja: medium skin tone",   "old woman: dark skin tone",     "farmer: medium skin tone",    "Santa Claus: dark skin tone"};
  return kPrompts;
}

Image draw_demo_sheet(std::span<const std::string> heading, std::span<const SheetBand> bands) {
  std::vector<Image> drawn;
  int width = 0;
  int height = kMargin + static_cast<int>(heading.size()) * line_height();
  for (const SheetBand& band : bands) {
    drawn.push_back(draw_band(band));
    width = std::max(width, drawn.back().width);
    height += kMargin + line_height() + drawn.back().height;
  }
  Image sheet = Image::filled(width, height, 3);
  for (size_t i = 0; i < sheet.pixels.size(); ++i) {
    sheet.pixels[i] = kBackground[i % 3];
  }
  int top = draw_lines(sheet, heading, kMargin);
  for (size_t i = 0; i < bands.size(); ++i) {
    top = draw_lines(sheet, {&bands[i].heading, 1}, top + kMargin);
    paste(sheet, drawn[i], top);
    top += drawn[i].height;
  }
  return sheet;
}

}  // namespace darkroom
