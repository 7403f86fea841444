#pragma once

#include <string>

namespace darkroom {

/// Unicode normalisation form C by Unicode 15.0, in time linear in the text.
std::u32string normalize_nfc(std::u32string text);

/// The same by Unicode 9, as the package tokenizers has it: every later character stands for itself and for a boundary,
/// whatever its combining class is today.
std::u32string normalize_nfc_unicode_9(std::u32string text);

/// Whether a character is a half-width or full-width form (U+FF01 to U+FFEF).
constexpr bool is_wide_form(char32_t code_point) { return code_point >= 0xFF01 && code_point < 0xFFF0; }

/// Appends NFKC of one of these. REQUIRES: is_wide_form.
void append_plain_form(char32_t code_point, std::u32string& out);

}  // namespace darkroom
