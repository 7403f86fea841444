#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace darkroom {

/// A picture of 8-bit samples, rows from the top, channels interleaved: pixels[(y * width + x) * num_channels + c].
/// Channels: 1 grey, 3 RGB, 4 RGBA (alpha not multiplied in). Thread safety: a value type.
struct Image {
  int width = 0;
  int height = 0;
  int num_channels = 0;
  std::vector<uint8_t> pixels;  ///< width * height * num_channels bytes.

  /// A picture of one value. REQUIRES: sizes >= 0, num_channels 1, 3 or 4.
  static Image filled(int width, int height, int num_channels, uint8_t value = 0);

  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(num_channels); }
  uint8_t* row(int y) { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  const uint8_t* row(int y) const { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  bool operator==(const Image&) const = default;
};

}  // namespace darkroom
