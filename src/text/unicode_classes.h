#pragma once

#include <array>
#include <cstdint>

namespace darkroom {

/// What CLIP's splitting expression tells apart: \s, \p{L}, \p{N} and the rest.
enum class CharacterClass : uint8_t { kSpace, kLetter, kNumber, kOther };

/// By Unicode 16: ICU's tables (15.0 on Debian 12) and the letters and numbers that came after them.
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

/// Rust's char::to_lowercase of one character (Unicode 17) as far as it is a single one. U+0130, the only character
/// with two, is the caller's.
char32_t lower_case(char32_t code_point);

}  // namespace darkroom
