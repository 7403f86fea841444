#include "text_layout.h"

#include <algorithm>

#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

void end_in_dots(std::u32string& line, size_t columns) {
  const size_t num_dots = std::min<size_t>(columns, 3);
  line.resize(std::min(line.size(), columns - num_dots));
  line.append(num_dots, U'.');
}

}  // namespace

std::u32string printable_characters(std::string_view text) {
  std::u32string characters = decode_utf8(text);
  const auto is_control = [](char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); };
  std::ranges::replace_if(characters, is_control, U' ');
  return characters;
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
