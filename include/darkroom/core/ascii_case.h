#pragma once

#include <string>

namespace darkroom {

/// The small letter of a capital from A to Z; any other byte as it is, whatever the locale.
constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string ascii_lower(std::string text) {
  for (char& c : text) {
    c = ascii_lower(c);
  }
  return text;
}

}  // namespace darkroom
