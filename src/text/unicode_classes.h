#pragma once

#include <array>
#include <cstdint>

namespace darkroom {

/// What CLIP's splitting expression tells apart: \s, \p{L}, \p{N} and the rest.
enum class CharacterClass : uint8_t { kSpace, kLetter, kNumber, kOther };

/// By Unicode 16, as the package tokenizers has it (src/text/unicode_table.inc; no system library is asked).
CharacterClass find_character_class(char32_t code_point);

inline constexpr std::array<CharacterClass, 128> kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes{};
  for (char32_t c = 0; c < classes.size(); ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = is_letter              ? CharacterClass::kLetter
                 : c >= '0' && c <= '9' ? CharacterClass::kNumber
                 : is_space             ? CharacterClass::kSpace
                                        : CharacterClass::kOther;
  }
  return classes;
}();

/// find_character_class, quickly for ASCII.
inline CharacterClass character_class(char32_t code_point) {
  return code_point < kAsciiClasses.size() ? kAsciiClasses[code_point] : find_character_class(code_point);
}

/// A decimal digit of any script (category Nd).
bool is_decimal_digit(char32_t code_point);

/// A letter, number or mark newer than Unicode 14, or one that Unicode 15 does not know either: versions of Unicode
/// treat these differently. Newer symbols, such as emoji, are symbols everywhere and not among them.
bool is_new_character(char32_t code_point);

}  // namespace darkroom
