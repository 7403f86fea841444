#pragma once

#include <string_view>

namespace darkroom {

/// Whether `line` holds characters that, written in one of ten single-byte encodings, would be a character of UTF-8: the
/// least that ftfy 6.3.1 needs to repair a line. Lost bytes (U+FFFD, U+001A, a question mark, a space for U+00A0) count as any.
bool holds_utf8_lookalike(std::u32string_view line);

}  // namespace darkroom
