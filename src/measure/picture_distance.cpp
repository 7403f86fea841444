#include "darkroom/measure/picture_distance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

// Where a pixel lies along each axis, in grey levels.
std::array<int, Palette::kNumAxes> along_axes(const uint8_t* rgb) {
  const int red = rgb[0], green = rgb[1], blue = rgb[2];
  return {red, green, blue, (red + green + blue) / 3, red - green, green - blue, blue - red};
}

}  // namespace

double psnr_db(const Image& a, const Image& b) {
  DARKROOM_CHECK(a.pixels.size() == b.pixels.size() && !a.pixels.empty(), "pictures of different sizes are compared:", a.pixels.size(),
                 b.pixels.size());
  int64_t sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    const int difference = int{a.pixels[i]} - int{b.pixels[i]};
    sum += difference * difference;
  }
  const double mean = static_cast<double>(sum) / static_cast<double>(a.pixels.size());
  return sum == 0 ? kEqualPicturesDb : std::min(kEqualPicturesDb, 10.0 * std::log10(255.0 * 255.0 / mean));
}

Palette::Palette(const Image& picture) {
  DARKROOM_CHECK(picture.num_channels == 3 && !picture.pixels.empty(), "a palette is of an RGB picture (channels):", picture.num_channels);
  constexpr int kZero = 255;  // The level of the value 0.
  std::array<std::vector<int64_t>, kNumAxes> counts;
  counts.fill(std::vector<int64_t>(kNumLevels, 0));
  for (size_t i = 0; i < picture.pixels.size(); i += 3) {
    const auto values = along_axes(picture.pixels.data() + i);
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      ++counts[axis][static_cast<size_t>(values[axis] + kZero)];
    }
  }
  const double num_pixels = static_cast<double>(picture.pixels.size() / 3);
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    int64_t num_up_to = 0;
    for (const int64_t count : counts[axis]) {
      num_up_to += count;
      shares_up_to_[axis].push_back(static_cast<double>(num_up_to) / num_pixels);
    }
  }
}

double palette_distance(const Palette& a, const Palette& b) {
  double sum = 0;
  for (size_t axis = 0; axis < Palette::kNumAxes; ++axis) {
    for (size_t level = 0; level < Palette::kNumLevels; ++level) {
      sum += std::abs(a.shares_up_to_[axis][level] - b.shares_up_to_[axis][level]);
    }
  }
  return sum / static_cast<double>(Palette::kNumAxes);
}

}  // namespace darkroom
