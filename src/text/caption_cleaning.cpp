#include "caption_cleaning.h"

#include <algorithm>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/utf8.h"
#include "ftfy_fixes.h"
#include "html_entities.h"
#include "letter_case.h"
#include "normal_form.h"
#include "unicode_classes.h"

namespace darkroom {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void lower_ascii(std::string_view text, std::string& out) {
  out.resize(text.size());
  std::ranges::transform(text, out.begin(), [](char c) { return is_ascii_space(c) ? ' ' : ascii_lower(c); });
}

// Nothing in it that fix_text or HTML unescaping would touch.
bool is_plain_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= ' ' && c < '\x7F' && c != '&') || c == '\t' || c == '\n' || c == '\r'; });
}

// str.isspace of Python: white space and the four ASCII separators.
bool is_python_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || character_class(c) == CharacterClass::kSpace; }

std::u32string collapse_spaces(const std::u32string& text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (!is_python_space(c)) {
      out += c;
    } else if (!out.empty() && out.back() != U' ') {
      out += U' ';
    }
  }
  if (!out.empty() && out.back() == U' ') {
    out.pop_back();
  }
  return out;
}

}  // namespace

void clean_hugging_face(std::string_view text, std::string& out) {
  if (is_ascii(text)) {
    lower_ascii(text, out);
    return;
  }
  out.clear();
  for (const char32_t c : normalize_nfc_unicode_9(decode_utf8(text))) {
    if (character_class(c) == CharacterClass::kSpace) {
      out += ' ';
    } else if (c == 0x130) {
      out += "i\u0307";
    } else {
      append_utf8(out, lower_case(c));
    }
  }
}

Unported clean_open_clip(std::string_view text, std::string& out) {
  if (is_plain_ascii(text)) {
    lower_ascii(text, out);
    return Unported::kNothing;
  }
  const FixedText fixed = fix_text(decode_utf8(text));
  const std::u32string unescaped = unescape_html(unescape_html(fixed.text));
  std::u32string lower = lower_text(collapse_spaces(unescaped));
  // The case-insensitive expression takes U+0345, whose capital is a letter, neither for a letter nor for anything else.
  std::ranges::replace(lower, U'\u0345', U' ');
  out = encode_utf8(lower);
  if (fixed.has_mojibake) {
    return Unported::kMojibake;
  }
  return std::ranges::any_of(unescaped, is_new_character) ? Unported::kNewCharacter : Unported::kNothing;
}

}  // namespace darkroom
