#include "darkroom/core/utf8.h"

namespace darkroom {

Utf8Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1, true};
  }
  const size_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
  if (length == 0) {
    return {kReplacementCharacter, 1, false};
  }
  // The second byte's range excludes over-long forms, surrogates and what lies past U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) {
      return {kReplacementCharacter, i, false};
    }
    code_point = code_point << 6 | (byte(i) & 0x3FU);
  }
  return {code_point, length, true};
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    out += character.code_point;
    text.remove_prefix(character.num_bytes);
  }
  return out;
}

void append_utf8(std::string& out, char32_t code_point) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  const int num_bytes = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  out += static_cast<char>((0xF00U >> num_bytes & 0xFF) | code_point >> 6 * (num_bytes - 1));
  for (int rest = num_bytes - 2; rest >= 0; --rest) {
    out += static_cast<char>(0x80 | (code_point >> 6 * rest & 0x3F));
  }
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    append_utf8(out, c);
  }
  return out;
}

std::pair<std::string, bool> replace_invalid_utf8(std::string_view text) {
  std::string valid;
  bool replaced = false;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    if (character.is_valid) {
      valid.append(text.substr(0, character.num_bytes));
    } else {
      append_utf8(valid, kReplacementCharacter);
      replaced = true;
    }
    text.remove_prefix(character.num_bytes);
  }
  return {std::move(valid), replaced};
}

}  // namespace darkroom
