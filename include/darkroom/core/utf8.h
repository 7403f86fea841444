#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace darkroom {

/// What ill-formed UTF-8 is read as.
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

/// The first character of some UTF-8 text.
struct Utf8Character {
  char32_t code_point;
  size_t num_bytes;
  bool is_valid;
};

/// The character at the start of `text` (Unicode, table 3-7: well-formed byte sequences). What is ill-formed is U+FFFD with
/// the length of its maximal valid beginning, at least one byte, as in Python's errors="replace". REQUIRES: not empty.
Utf8Character first_character(std::string_view text);

/// The code points of `text`; each ill-formed part becomes one U+FFFD.
std::u32string decode_utf8(std::string_view text);

/// Appends one character. REQUIRES: no surrogate, at most U+10FFFF.
void append_utf8(std::string& out, char32_t code_point);

/// REQUIRES: as append_utf8, of every character.
std::string encode_utf8(std::u32string_view text);

/// The text with each ill-formed part replaced by U+FFFD, and whether there was one.
std::pair<std::string, bool> replace_invalid_utf8(std::string_view text);

}  // namespace darkroom
