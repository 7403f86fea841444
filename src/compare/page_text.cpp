#include "page_text.h"

#include <fmt/format.h>

#include "darkroom/core/utf8.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"

namespace darkroom {

std::string counted(int64_t value) {
  constexpr int kEveryDigit = 17;
  return number_text(static_cast<double>(value), kEveryDigit);
}

std::string one_line(std::string_view text, size_t max_characters) {
  std::u32string characters = decode_utf8(text);
  for (char32_t& character : characters) {
    character = character < 0x20 || character == 0x7F ? kReplacementCharacter : character;
  }
  if (characters.size() > max_characters) {
    characters.resize(max_characters - 3);
    characters += U"...";
  }
  return encode_utf8(characters);
}

std::string facts_html(const std::string& title, const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string html = fmt::format("<h2>{}</h2><table class=\"facts\">", escape_html(title));
  for (const auto& [name, value] : facts) {
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>", escape_html(name), escape_html(value));
  }
  return html + "</table>";
}

}  // namespace darkroom
