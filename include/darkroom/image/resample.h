#pragma once

#include <cstdint>

#include "darkroom/image/image.h"

namespace darkroom {

/// Filters with Pillow's radii: box 0.5, bilinear 1, hamming 1, bicubic 2 (a = -0.5), lanczos 3.
enum class Filter : uint8_t { kBilinear, kBicubic, kLanczos, kHamming, kBox };

/// A rectangle of pixels.
struct Window {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};

/// Resizes with antialiasing, equal to the last bit to Pillow 13's `Image.resize((width, height), filter)` for L, RGB and
/// RGBA: two passes with weights of 22 fractional bits, each rounded to 8 bits; columns first, but rows first where these
/// lose more than twice as many samples (Pillow 12 and before: always columns first). RGBA is multiplied by its alpha
/// before and divided after. An unchanged size returns the picture itself. The bits are the same on every processor.
/// REQUIRES: width, height >= 1; image not empty, 1, 3 or 4 channels. Thread safety: pure.
Image resize(const Image& image, int width, int height, Filter filter);

/// The `window` of resize(image, width, height, filter), computing nothing outside it.
/// REQUIRES: as resize, and the window lies within width x height and is not empty.
Image resize_window(const Image& image, int width, int height, Filter filter, const Window& window);

}  // namespace darkroom
