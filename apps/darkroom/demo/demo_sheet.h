#pragma once

#include <span>
#include <string>
#include <vector>

#include "darkroom/image/image.h"

namespace darkroom {

/// The captions on the sheet: familiar things of different kinds (faces, animals, nature, food, flags, a keycap), each of
/// them a caption of the corpus and short enough for one line above its column.
std::span<const std::string> sheet_prompts();

/// A row of pictures, one for each of sheet_prompts().
struct SheetRow {
  std::string title;
  std::vector<Image> pictures;
};

/// Draws the rows for all prompts, a band of eight prompts at a time, under lines of text.
/// REQUIRES: as many pictures in every row as there are prompts.
Image draw_demo_sheet(std::span<const std::string> heading, std::span<const SheetRow> rows);

}  // namespace darkroom
