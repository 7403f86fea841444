#include "darkroom/image/contact_sheet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr Rgb kBlack = {0, 0, 0};

Image drawn(std::string_view text, int width = 100) {
  Image image = Image::filled(width, text_line_height(), 3, 255);
  draw_text(image, 0, 0, text, kBlack);
  return image;
}

Rgb pixel(const Image& image, int x, int y) { return {image.row(y)[3 * x], image.row(y)[3 * x + 1], image.row(y)[3 * x + 2]}; }

int count(const Image& image, Rgb colour) {
  int found = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    found += image.pixels[i] == colour[0] && image.pixels[i + 1] == colour[1] && image.pixels[i + 2] == colour[2];
  }
  return found;
}

TEST(DrawText, draws_every_printable_latin_character_differently_from_the_box) {
  const Image box = drawn("\xE6\xBC\xA2");
  EXPECT_EQ(drawn("\xFF"), box);                            // malformed
  EXPECT_EQ(drawn("\xC0\x80"), drawn("\xFF\xFF"));          // overlong
  EXPECT_EQ(drawn("\xED\xA0\x80"), drawn("\xFF\xFF\xFF"));  // a surrogate
  EXPECT_EQ(drawn("\xF0\x9F\x98\x80"), box);                // one character beyond the font
  for (int code = 0x21; code < 0x7F; ++code) {
    const Image glyph = drawn(std::string(1, static_cast<char>(code)));
    EXPECT_NE(glyph, box) << code;
    EXPECT_NE(glyph, drawn(" ")) << code;
  }
  EXPECT_NE(drawn("\xC3\xA9"), drawn("e"));
  EXPECT_EQ(drawn("a\nb\tc"), drawn("a b c"));
}

TEST(DrawText, clips_at_every_edge) {
  for (const auto& [left, top] : {std::pair{-3, -4}, {97, 10}, {-500, 0}, {500, 500}, {2147483640, 0}}) {
    Image image = Image::filled(100, 20, 3, 255);
    draw_text(image, left, top, "Wide text that leaves the picture", kBlack);
  }
  Image grey = Image::filled(9, 9, 1);
  EXPECT_THROW(draw_text(grey, 0, 0, "x", kBlack), CheckFailure);
}

TEST(DrawText, measures_characters_not_bytes) {
  EXPECT_EQ(text_width("abc"), 3 * text_width("x"));
  EXPECT_EQ(text_width("\xC3\xA9\xE6\xBC\xA2"), 2 * text_width("x"));
  EXPECT_EQ(text_width(""), 0);
}

TEST(ContactSheet, places_pictures_on_the_background) {
  ContactSheetCell red{Image::filled(1, 1, 3), ""};
  red.picture.pixels[0] = 255;
  const Image sheet = render_contact_sheet({{red, red}, {red}}, {.cell_width = 20, .cell_height = 10, .background = {1, 2, 3}});
  EXPECT_EQ(sheet.width, 8 + 2 * 28);
  EXPECT_EQ(sheet.height, 8 + 2 * 18);
  EXPECT_EQ(count(sheet, {255, 0, 0}), 3 * 10 * 10);  // enlarged by the factor that fits
  EXPECT_EQ(pixel(sheet, 0, 0), (Rgb{1, 2, 3}));
  EXPECT_EQ(pixel(sheet, 8 + 5, 8), (Rgb{255, 0, 0}));
  EXPECT_EQ(pixel(sheet, 8 + 4, 8), (Rgb{1, 2, 3}));
}

TEST(ContactSheet, shrinks_large_pictures_and_blends_alpha) {
  const ContactSheetCell grey{Image::filled(300, 30, 1, 7), ""};
  const ContactSheetCell clear{Image::filled(1, 1, 4), ""};
  const Image sheet = render_contact_sheet({{grey, clear}}, {.cell_width = 100, .cell_height = 50});
  EXPECT_EQ(count(sheet, {7, 7, 7}), 100 * 10);
  EXPECT_EQ(count(sheet, {255, 255, 255}), sheet.width * sheet.height - 100 * 10);
}

TEST(ContactSheet, wraps_captions_and_cuts_what_does_not_fit) {
  const auto height_with = [](const std::string& caption) {
    return render_contact_sheet({{{{}, caption}}}, {.cell_width = 10 * text_width("x"), .cell_height = 20}).height;
  };
  const int bare = height_with("");
  const int line = text_line_height();
  EXPECT_EQ(height_with("ten chars."), bare + line);
  EXPECT_EQ(height_with("eleven chars"), bare + 2 * line);
  EXPECT_EQ(height_with("unbreakable"), bare + 2 * line);
  EXPECT_EQ(height_with("   "), bare);
  EXPECT_EQ(height_with(std::string(10000, 'w')), bare + 3 * line);
  const auto sheet_of = [](const std::string& caption) {
    return render_contact_sheet({{{{}, caption}}}, {.cell_width = 10 * text_width("x"), .cell_height = 20, .num_caption_lines = 1});
  };
  EXPECT_EQ(sheet_of("0123456789abc"), sheet_of("0123456..."));
}

TEST(ContactSheet, leaves_room_for_titles) {
  const ContactSheetOptions options{
      .cell_width = 50, .cell_height = 50, .column_titles = {"input", "a very long column title"}, .row_titles = {"one"}};
  const Image titled = render_contact_sheet({{{{}, ""}, {{}, ""}}}, options);
  const Image plain = render_contact_sheet({{{{}, ""}, {{}, ""}}}, {.cell_width = 50, .cell_height = 50});
  EXPECT_EQ(titled.width, plain.width + text_width("one") + 8);
  EXPECT_GT(titled.height, plain.height);
}

TEST(ContactSheet, draws_an_empty_sheet_and_refuses_impossible_cells) {
  EXPECT_GT(render_contact_sheet({}).width, 0);
  EXPECT_THROW((void)render_contact_sheet({}, {.cell_width = 0}), CheckFailure);
}

TEST(HeatMap, runs_from_dark_blue_to_yellow) {
  const std::vector<float> values = {-1, 0, 1, std::nanf(""), std::numeric_limits<float>::infinity(), -0.5F};
  const Image map = draw_heat_map(values, 2, 3);
  EXPECT_EQ(map.width, 3);
  EXPECT_EQ(pixel(map, 0, 0), (Rgb{68, 1, 84}));
  EXPECT_EQ(pixel(map, 1, 0), (Rgb{33, 145, 140}));
  EXPECT_EQ(pixel(map, 2, 0), (Rgb{253, 231, 37}));
  EXPECT_EQ(pixel(map, 0, 1), (Rgb{255, 0, 255}));
  EXPECT_EQ(pixel(map, 1, 1), (Rgb{255, 0, 255}));
  EXPECT_EQ(pixel(map, 2, 1), (Rgb{59, 82, 139}));
}

TEST(HeatMap, shows_equal_values_in_the_middle_colour) {
  const std::vector<float> values = {std::numeric_limits<float>::max(), std::numeric_limits<float>::max()};
  EXPECT_EQ(pixel(draw_heat_map(values, 1, 2), 0, 0), (Rgb{33, 145, 140}));
  EXPECT_THROW((void)draw_heat_map(values, 2, 2), CheckFailure);
  const std::vector<float> apart = {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()};
  EXPECT_EQ(pixel(draw_heat_map(apart, 1, 2), 0, 0), (Rgb{253, 231, 37}));
}

}  // namespace
}  // namespace darkroom
