#include "darkroom/core/base64.h"

#include <algorithm>
#include <cstdint>

namespace darkroom {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t num_bytes = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < num_bytes ? static_cast<uint8_t>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= num_bytes ? kBase64[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string bytes;
  uint32_t group = 0;
  int num_bits = 0;
  for (const char letter : text) {
    const size_t value = kBase64.find(letter);
    if (value == std::string_view::npos) {
      return std::nullopt;
    }
    group = (group << 6 | static_cast<uint32_t>(value)) & 0xFFFF;
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>(group >> num_bits & 0xFF);
    }
  }
  return bytes;
}

}  // namespace darkroom
