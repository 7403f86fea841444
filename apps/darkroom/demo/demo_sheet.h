#pragma once

#include <span>
#include <string>
#include <vector>

#include "darkroom/image/image.h"

namespace darkroom {

/// The training captions on the sheet: familiar things of different kinds (faces, animals, nature, food, flags, a keycap),
/// each of them a caption of the corpus.
std::span<const std::string> sheet_prompts();

/// Held-out captions on the sheet (held_out.json, docs/corpus.md): no training saw their pictures.
std::span<const std::string> held_out_sheet_prompts();

/// A row of pictures, one for each prompt of its band.
struct SheetRow {
  std::string title;
  std::vector<Image> pictures;
};

/// Rows of pictures of the same prompts, under a line that says what they are.
struct SheetBand {
  std::string heading;
  std::vector<std::string> prompts;  ///< Written below the first row's pictures.
  std::vector<SheetRow> rows;
};

/// Draws the bands below each other, under lines of text.
/// REQUIRES: as many pictures in every row as its band has prompts.
Image draw_demo_sheet(std::span<const std::string> heading, std::span<const SheetBand> bands);

}  // namespace darkroom
