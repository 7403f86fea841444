#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace darkroom {

/// The code points of UTF-8 text; control characters become spaces.
std::u32string printable_characters(std::string_view text);

/// Breaks text into lines of at most `columns` characters, at spaces where it can. What does not fit into `max_lines` is
/// dropped and the last line ends in "..." then. REQUIRES: columns >= 1, max_lines >= 0.
std::vector<std::u32string> wrap_text(std::u32string_view text, size_t columns, size_t max_lines);

}  // namespace darkroom
