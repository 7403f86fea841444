#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace darkroom {

/// `num_bytes` bytes, the lowest first.
inline std::string little_endian(uint64_t value, int num_bytes) {
  std::string text;
  for (int i = 0; i < num_bytes; ++i) {
    text.push_back(static_cast<char>(value >> 8 * i & 0xFF));
  }
  return text;
}

/// The VP8L data of a picture of one colour, whole and yet a few bytes long: each of its five codes has one symbol, which takes no bit.
inline std::string one_colour_vp8l(uint32_t width, uint32_t height, std::array<uint8_t, 4> rgba) {
  std::array<uint64_t, 2> bits{};
  int num_bits = 3;  // Neither transforms, nor a cache of colours, nor several sets of codes.
  const auto put = [&](uint64_t value, int count) {
    for (int i = 0; i < count; ++i, ++num_bits) {
      bits[static_cast<size_t>(num_bits / 64)] |= (value >> i & 1) << num_bits % 64;
    }
  };
  for (const uint8_t symbol : {rgba[1], rgba[0], rgba[2], rgba[3], uint8_t{0}}) {  // Green, red, blue, alpha, distance.
    put(0b101, 3);                                                                 // A simple code, of one symbol of 8 bits.
    put(symbol, 8);
  }
  const uint64_t size_and_alpha = (width - 1) | uint64_t{height - 1} << 14 | 1U << 28;
  return "\x2F" + little_endian(size_and_alpha, 4) + little_endian(bits[0], 8) + '\0';
}

/// An animation whose only frame, of one colour, is smaller than its canvas and lies at (x, y), which must be even.
inline std::string webp_on_canvas(uint32_t canvas_width, uint32_t canvas_height, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
                                  std::array<uint8_t, 4> rgba) {
  const auto chunk = [](const std::string& name, const std::string& body) {
    return name + little_endian(body.size(), 4) + body + std::string(body.size() % 2, '\0');
  };
  const std::string extended = std::string("\x12\0\0\0", 4) + little_endian(canvas_width - 1, 3) + little_endian(canvas_height - 1, 3);
  const std::string frame = little_endian(x / 2, 3) + little_endian(y / 2, 3) + little_endian(width - 1, 3) + little_endian(height - 1, 3) +
                            little_endian(100, 3) + '\0' + chunk("VP8L", one_colour_vp8l(width, height, rgba));
  return chunk("RIFF", "WEBP" + chunk("VP8X", extended) + chunk("ANIM", std::string(6, '\0')) + chunk("ANMF", frame));
}

}  // namespace darkroom
