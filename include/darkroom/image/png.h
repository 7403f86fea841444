#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/image/image.h"

namespace darkroom {

/// Keyword and text of a PNG text chunk, both UTF-8.
using PngText = std::pair<std::string, std::string>;

/// Writes a grey, RGB or RGBA PNG. Text is stored before the pixels in the order given: as tEXt when it is plain ASCII,
/// else as uncompressed iTXt. The same arguments give the same bytes (with the same zlib).
/// REQUIRES: image not empty; keywords of 1 to 79 printable ASCII characters without leading, trailing or double spaces; no NUL in a text.
std::string encode_png(const Image& image, const std::vector<PngText>& text = {});

/// The uncompressed text chunks (tEXt, iTXt) in file order; Latin-1 comes back as UTF-8. Compressed ones are skipped.
/// Errors: kCorruptData (not a PNG, or a chunk is cut or has a wrong checksum).
Result<std::vector<PngText>> read_png_text(std::span<const std::byte> bytes);

}  // namespace darkroom
