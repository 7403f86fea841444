#pragma once

#include <string>

namespace darkroom {

/// Rust's char::to_lowercase of one character (Unicode 17) as far as it is a single one. U+0130, the only character
/// with two, is the caller's.
char32_t lower_case(char32_t code_point);

/// Full, language-neutral lower case of a whole text by Unicode 15.0: final sigma, dotted capital I.
std::u32string lower_text(std::u32string_view text);

}  // namespace darkroom
