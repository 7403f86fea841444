#pragma once

#include <cstdint>

namespace darkroom {

/// a * b / 255, rounded, as Pillow's MULDIV255 computes it. REQUIRES: both in 0..255.
inline uint8_t multiply_by_fraction(int a, int b) {
  const int product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

}  // namespace darkroom
