#include "percent_escapes.h"

#include <charconv>

namespace darkroom {

std::optional<std::string> decode_escapes(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '%') {
      const std::string_view digits = text.substr(i + 1, 2);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (digits.size() < 2 || error != std::errc() || end != digits.data() + digits.size()) {
        return std::nullopt;
      }
      i += 2;
    }
    if (byte < ' ' || byte == 0x7F) {
      return std::nullopt;
    }
    decoded += static_cast<char>(byte);
  }
  return decoded;
}

}  // namespace darkroom
