#pragma once

#include <string>

namespace darkroom {

struct FixedText {
  std::u32string text;
  bool has_mojibake = false;       ///< ftfy would have tried to repair the encoding of a line.
  size_t num_characters_read = 0;  ///< Over all passes: the work done, linear in the text.
};

/// ftfy 6.3.1's fix_text without its repair of mojibake (fix_encoding). Ported are: unescape_html ("auto": until a line
/// holds "<"), fix_c1_controls, fix_latin_ligatures, fix_character_width, uncurl_quotes, fix_line_breaks,
/// remove_terminal_escapes, remove_control_chars and NFC, line by line and repeated until nothing changes.
/// fix_surrogates has no work in UTF-8.
FixedText fix_text(const std::u32string& text);

}  // namespace darkroom
