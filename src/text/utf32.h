#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// Code points of UTF-8 text; every maximal ill-formed part becomes one U+FFFD, as in Python's errors="replace".
std::u32string to_utf32(std::string_view utf8);
/// REQUIRES: no surrogates.
std::string to_utf8(const std::u32string& text);

/// Full, language-neutral case mapping of a whole text: final sigma, dotted capital I, sharp s.
std::u32string to_lower(const std::u32string& text);
std::u32string to_upper(const std::u32string& text);

/// Unicode normalisation form C.
std::u32string to_nfc(const std::u32string& text);
/// Compatibility decomposition and composition of one character.
std::u32string to_nfkc(char32_t code_point);

}  // namespace darkroom
