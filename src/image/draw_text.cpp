#include "draw_text.h"

#include "darkroom/core/check.h"
#include "font_table.h"
#include "text_layout.h"

namespace darkroom {
namespace {

const char* glyph_of(char32_t code_point) {
  if (code_point >= 0x20 && code_point <= 0x7E) {
    return kFontGlyphs[code_point - 0x20];
  }
  if (code_point >= 0xA0 && code_point <= 0xFF) {
    return kFontGlyphs[95 + code_point - 0xA0];
  }
  return nullptr;
}

// The outline that stands for a character that the font lacks.
bool is_box_edge(int x, int y) {
  constexpr int kLeft = 1, kRight = kGlyphWidth - 2, kTop = 3, kBottom = kGlyphHeight - 4;
  const bool is_inside = x >= kLeft && x <= kRight && y >= kTop && y <= kBottom;
  return is_inside && (x == kLeft || x == kRight || y == kTop || y == kBottom);
}

// 0 to 15.
int coverage(const char* glyph, int x, int y) {
  if (glyph == nullptr) {
    return is_box_edge(x, y) ? 15 : 0;
  }
  const char digit = glyph[y * kGlyphWidth + x];
  return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

void blend(uint8_t* pixel, Rgb colour, int coverage) {
  for (size_t c = 0; c < 3; ++c) {
    pixel[c] = static_cast<uint8_t>((pixel[c] * (15 - coverage) + colour[c] * coverage + 7) / 15);
  }
}

}  // namespace

void draw_code_points(Image& image, int left, int top, std::u32string_view text, Rgb colour) {
  DARKROOM_CHECK(image.num_channels == 3, "text is drawn on RGB only, channels:", image.num_channels);
  int64_t glyph_left = left;
  for (const char32_t code_point : text) {
    const char* glyph = glyph_of(code_point);
    for (int y = 0; y < kGlyphHeight; ++y) {
      for (int x = 0; x < kGlyphWidth; ++x) {
        const int64_t to_x = glyph_left + x;
        const int64_t to_y = int64_t{top} + y;
        if (to_x >= 0 && to_x < image.width && to_y >= 0 && to_y < image.height) {
          blend(image.row(static_cast<int>(to_y)) + to_x * 3, colour, coverage(glyph, x, y));
        }
      }
    }
    glyph_left += kGlyphWidth;
  }
}

void draw_text(Image& image, int left, int top, std::string_view text, Rgb colour) {
  draw_code_points(image, left, top, printable_characters(text), colour);
}

int text_width(std::string_view text) { return static_cast<int>(printable_characters(text).size()) * kGlyphWidth; }

int text_line_height() { return kGlyphHeight; }

}  // namespace darkroom
