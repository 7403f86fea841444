#pragma once

#include <strings.h>

#include <string_view>

namespace darkroom {

/// Without the white space of a header or a line of robots.txt at both ends: blanks, tabs and line ends.
inline std::string_view trim_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Equal but for the case of ASCII letters.
inline bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace darkroom
