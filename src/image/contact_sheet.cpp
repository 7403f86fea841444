#include "darkroom/image/contact_sheet.h"

#include <algorithm>
#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/image/resample.h"
#include "draw_text.h"
#include "font_table.h"
#include "text_layout.h"

namespace darkroom {
namespace {

constexpr int kMargin = 8;  // Around the sheet and between cells.
constexpr int kMaxRowTitleColumns = 24;

using Lines = std::vector<std::u32string>;

struct SheetLayout {
  int first_column = 0;  // Left edge of the first cell.
  int width = 0;
  int height = 0;
  std::vector<int> row_tops;
};

size_t columns_of(int width) { return static_cast<size_t>(std::max(width / kGlyphWidth, 1)); }

Lines caption_of(const ContactSheetCell& cell, const ContactSheetOptions& options) {
  return wrap_text(printable_characters(cell.caption), columns_of(options.cell_width), static_cast<size_t>(options.num_caption_lines));
}

std::u32string title_of(const std::string& title, size_t columns) {
  const Lines lines = wrap_text(printable_characters(title), columns, 1);
  return lines.empty() ? std::u32string() : lines.front();
}

SheetLayout lay_out(const std::vector<std::vector<ContactSheetCell>>& rows, const ContactSheetOptions& options) {
  size_t num_columns = options.column_titles.size();
  size_t row_title_columns = 0;
  for (const std::string& title : options.row_titles) {
    row_title_columns = std::max(row_title_columns, title_of(title, kMaxRowTitleColumns).size());
  }
  SheetLayout layout;
  layout.first_column = kMargin + (row_title_columns > 0 ? static_cast<int>(row_title_columns) * kGlyphWidth + kMargin : 0);
  int top = kMargin + (options.column_titles.empty() ? 0 : kGlyphHeight + kMargin / 2);
  for (const auto& row : rows) {
    num_columns = std::max(num_columns, row.size());
    size_t caption_lines = 0;
    for (const ContactSheetCell& cell : row) {
      caption_lines = std::max(caption_lines, caption_of(cell, options).size());
    }
    layout.row_tops.push_back(top);
    top += options.cell_height + static_cast<int>(caption_lines) * kGlyphHeight + kMargin;
  }
  layout.width = layout.first_column + std::max(static_cast<int>(num_columns), 1) * (options.cell_width + kMargin);
  layout.height = std::max(top, 2 * kMargin);
  return layout;
}

// Whole factors only, so that one sample stays one sharp square.
Image enlarge(const Image& picture, int factor) {
  Image large = Image::filled(picture.width * factor, picture.height * factor, picture.num_channels);
  const auto channels = static_cast<size_t>(picture.num_channels);
  for (int y = 0; y < large.height; ++y) {
    for (int x = 0; x < large.width; ++x) {
      std::copy_n(picture.row(y / factor) + static_cast<size_t>(x / factor) * channels, channels,
                  large.row(y) + static_cast<size_t>(x) * channels);
    }
  }
  return large;
}

Image fit_into_cell(const Image& picture, const ContactSheetOptions& options) {
  const double scale =
      std::min(static_cast<double>(options.cell_width) / picture.width, static_cast<double>(options.cell_height) / picture.height);
  if (scale >= 2) {
    return enlarge(picture, static_cast<int>(scale));
  }
  if (scale >= 1) {
    return picture;
  }
  const auto shrunk = [&](int size) { return std::max(static_cast<int>(std::floor(size * scale + 1e-9)), 1); };
  return resize(picture, shrunk(picture.width), shrunk(picture.height), Filter::kLanczos);
}

void paste(Image& sheet, const Image& picture, int left, int top) {
  const auto channels = static_cast<size_t>(picture.num_channels);
  for (int y = 0; y < picture.height; ++y) {
    uint8_t* out = sheet.row(top + y) + static_cast<size_t>(left) * 3;
    const uint8_t* in = picture.row(y);
    for (int x = 0; x < picture.width; ++x, out += 3, in += channels) {
      const int alpha = channels == 4 ? in[3] : 255;
      for (size_t c = 0; c < 3; ++c) {
        const int value = in[channels == 1 ? 0 : c];
        out[c] = static_cast<uint8_t>((value * alpha + out[c] * (255 - alpha) + 127) / 255);
      }
    }
  }
}

void draw_cell(Image& sheet, const ContactSheetCell& cell, int left, int top, const ContactSheetOptions& options) {
  if (cell.picture.width > 0 && cell.picture.height > 0) {
    const Image picture = fit_into_cell(cell.picture, options);
    paste(sheet, picture, left + (options.cell_width - picture.width) / 2, top + (options.cell_height - picture.height) / 2);
  }
  int line_top = top + options.cell_height;
  for (const std::u32string& line : caption_of(cell, options)) {
    draw_code_points(sheet, left, line_top, line, options.text_colour);
    line_top += kGlyphHeight;
  }
}

Image blank_sheet(const SheetLayout& layout, Rgb background) {
  Image sheet = Image::filled(layout.width, layout.height, 3);
  for (size_t i = 0; i < sheet.pixels.size(); ++i) {
    sheet.pixels[i] = background[i % 3];
  }
  return sheet;
}

}  // namespace

Image render_contact_sheet(const std::vector<std::vector<ContactSheetCell>>& rows, const ContactSheetOptions& options) {
  DARKROOM_CHECK(options.cell_width >= 1 && options.cell_height >= 1 && options.num_caption_lines >= 0,
                 "a contact sheet of impossible cells (width, height, lines):", options.cell_width, options.cell_height,
                 options.num_caption_lines);
  const SheetLayout layout = lay_out(rows, options);
  Image sheet = blank_sheet(layout, options.background);
  const auto left_of = [&](size_t column) { return layout.first_column + static_cast<int>(column) * (options.cell_width + kMargin); };
  for (size_t column = 0; column < options.column_titles.size(); ++column) {
    draw_code_points(sheet, left_of(column), kMargin, title_of(options.column_titles[column], columns_of(options.cell_width)),
                     options.text_colour);
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    const int top = layout.row_tops[row];
    if (row < options.row_titles.size()) {
      draw_code_points(sheet, kMargin, top + (options.cell_height - kGlyphHeight) / 2,
                       title_of(options.row_titles[row], kMaxRowTitleColumns), options.text_colour);
    }
    for (size_t column = 0; column < rows[row].size(); ++column) {
      draw_cell(sheet, rows[row][column], left_of(column), top, options);
    }
  }
  return sheet;
}

}  // namespace darkroom
