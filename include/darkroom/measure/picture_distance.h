#pragma once

#include <array>
#include <vector>

#include "darkroom/image/image.h"

namespace darkroom {

/// What equal pictures count as, and the most that psnr_db gives.
inline constexpr double kEqualPicturesDb = 100.0;

/// Peak signal-to-noise ratio of two pictures of one size in dB: 10 log10(255^2 / mean squared error), at most kEqualPicturesDb.
/// REQUIRES: pictures of one size, not empty. Thread safety of all here: pure.
double psnr_db(const Image& a, const Image& b);

/// In which colours a picture is painted, wherever they lie: its pixels' distribution along each of kPaletteAxes.
class Palette {
 public:
  /// Directions in RGB: the three channels, their mean, and their three differences.
  static constexpr size_t kNumAxes = 7;
  /// Values along an axis, one a grey level: -255 to 255.
  static constexpr size_t kNumLevels = 511;

  /// REQUIRES: an RGB picture, not empty.
  explicit Palette(const Image& picture);

  friend double palette_distance(const Palette& a, const Palette& b);

 private:
  std::array<std::vector<double>, kNumAxes> shares_up_to_;  // Of each axis: the share of pixels at or below each level.
};

/// By how many grey levels the pixels of one picture would have to move, wherever they lie, to be those of the other: the mean over the
/// axes of the earth mover's distance between the two distributions along it, which in one dimension is the area between the cumulative
/// shares (a sliced Wasserstein-1 distance with fixed slices). 0 for equal palettes, at most 255 * (4 + 3 * 2) / 7; pictures may
/// differ in size.
double palette_distance(const Palette& a, const Palette& b);

}  // namespace darkroom
