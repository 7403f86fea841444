#include "text_layout.h"

#include <algorithm>
#include <cstdint>

namespace darkroom {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Decoded {
  char32_t code_point;
  size_t num_bytes;
};

// Unicode 15, table 3-7: well-formed byte sequences.
Decoded decode_first(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) {
    return {kReplacement, 1};
  }
  char32_t code_point = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return {kReplacement, 1};
    }
    code_point = code_point << 6 | (byte(i) & 0x3FU);
  }
  const bool is_overlong = (length == 3 && code_point < 0x800) || (length == 4 && code_point < 0x10000);
  const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (is_overlong || is_surrogate || code_point > 0x10FFFF) {
    return {kReplacement, 1};
  }
  return {code_point, length};
}

void end_in_dots(std::u32string& line, size_t columns) {
  const size_t num_dots = std::min<size_t>(columns, 3);
  line.resize(std::min(line.size(), columns - num_dots));
  line.append(num_dots, U'.');
}

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string result;
  while (!text.empty()) {
    const auto [code_point, num_bytes] = decode_first(text);
    const bool is_control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
    result += is_control ? U' ' : code_point;
    text.remove_prefix(num_bytes);
  }
  return result;
}

std::vector<std::u32string> wrap_text(std::u32string_view text, size_t columns, size_t max_lines) {
  std::vector<std::u32string> lines;
  const auto skip_spaces = [&] { text.remove_prefix(std::min(text.find_first_not_of(U' '), text.size())); };
  for (skip_spaces(); !text.empty() && lines.size() < max_lines; skip_spaces()) {
    size_t length = std::min(columns, text.size());
    if (length < text.size() && text[length] != U' ') {
      const size_t space = text.substr(0, length).rfind(U' ');
      length = space != std::u32string_view::npos ? space : length;
    }
    const size_t last = text.substr(0, length).find_last_not_of(U' ');
    lines.emplace_back(text.substr(0, last + 1));
    text.remove_prefix(length);
  }
  if (!text.empty() && !lines.empty()) {
    end_in_dots(lines.back(), columns);
  }
  return lines;
}

}  // namespace darkroom
