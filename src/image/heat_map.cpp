#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "darkroom/image/contact_sheet.h"

namespace darkroom {
namespace {

constexpr std::array<Rgb, 5> kColours = {Rgb{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
constexpr Rgb kNotFinite = {255, 0, 255};

// `position` in [0, 1] along the map, linear between its points.
Rgb colour_at(double position) {
  const double scaled = position * (kColours.size() - 1);
  const size_t below = std::min(static_cast<size_t>(scaled), kColours.size() - 2);
  const double share = scaled - static_cast<double>(below);
  Rgb colour;
  for (size_t c = 0; c < 3; ++c) {
    colour[c] = static_cast<uint8_t>(std::lround(kColours[below][c] * (1 - share) + kColours[below + 1][c] * share));
  }
  return colour;
}

}  // namespace

Image draw_heat_map(std::span<const float> values, int rows, int cols) {
  DARKROOM_CHECK(rows >= 1 && cols >= 1 && values.size() == static_cast<size_t>(rows) * static_cast<size_t>(cols),
                 "a heat map's values do not fit its size (values, rows, cols):", values.size(), rows, cols);
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -lowest;
  for (const float value : values) {
    if (std::isfinite(value)) {
      lowest = std::min<double>(lowest, value);
      highest = std::max<double>(highest, value);
    }
  }
  Image image = Image::filled(cols, rows, 3);
  for (size_t i = 0; i < values.size(); ++i) {
    Rgb colour = kNotFinite;
    if (std::isfinite(values[i])) {
      colour = colour_at(highest > lowest ? (values[i] - lowest) / (highest - lowest) : 0.5);
    }
    std::copy(colour.begin(), colour.end(), image.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i));
  }
  return image;
}

}  // namespace darkroom
