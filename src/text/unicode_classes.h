#pragma once

#include <cstdint>

namespace darkroom {

/// What CLIP's splitting expression tells apart: \s, \p{L}, \p{N} and the rest.
enum class CharacterClass : uint8_t { kSpace, kLetter, kNumber, kOther };

/// By Unicode 16: ICU's tables (15.0 on Debian 12) and the letters and numbers that came after them.
CharacterClass character_class(char32_t code_point);

/// Rust's char::to_lowercase of one character (Unicode 17) as far as it is a single one. U+0130, the only character
/// with two, is the caller's.
char32_t lower_case(char32_t code_point);

}  // namespace darkroom
