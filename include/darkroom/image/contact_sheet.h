#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/image/image.h"

namespace darkroom {

using Rgb = std::array<uint8_t, 3>;

/// One picture with a caption below it; an empty picture leaves its place free.
struct ContactSheetCell {
  Image picture;
  std::string caption;  ///< UTF-8.
};

struct ContactSheetOptions {
  int cell_width = 256;                         ///< Pixels a picture and its caption may use; larger pictures are shrunk to fit.
  int cell_height = 256;                        ///< Pixels of a picture, caption excluded.
  int num_caption_lines = 3;                    ///< At most so many lines; what does not fit ends in "...".
  std::vector<std::string> column_titles = {};  ///< None, or one a column.
  std::vector<std::string> row_titles = {};     ///< None, or one a row.
  Rgb background = {255, 255, 255};
  Rgb text_colour = {24, 24, 24};
};

/// Draws rows of captioned pictures as one RGB picture. Small pictures are enlarged by whole factors without smoothing,
/// so that single latent cells stay visible. Captions are wrapped at spaces. Alpha is blended over the background.
/// REQUIRES: cell sizes >= 1; pictures of 1, 3 or 4 channels. Thread safety: pure.
Image render_contact_sheet(const std::vector<std::vector<ContactSheetCell>>& rows, const ContactSheetOptions& options = {});

/// Draws rows x cols values, lowest dark blue, middle green, highest yellow (a five-point approximation of the viridis
/// map: 68,1,84; 59,82,139; 33,145,140; 94,201,98; 253,231,37), one pixel a value. All equal gives the middle colour;
/// NaN and infinities are magenta and do not count for the range. REQUIRES: values.size() == rows * cols, both >= 1.
Image draw_heat_map(std::span<const float> values, int rows, int cols);

/// Draws one line of text with its top left corner at (left, top), clipped to the RGB picture. The font covers printable
/// ASCII and Latin-1 (U+0020-7E, U+00A0-FF); other characters appear as a box, malformed UTF-8 too.
void draw_text(Image& image, int left, int top, std::string_view text, Rgb colour);

/// Width of a line of text in pixels, and the height of every line.
int text_width(std::string_view text);
int text_line_height();

}  // namespace darkroom
