#include "darkroom/measure/picture_distance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

Image of_colour(int red, int green, int blue) {
  Image picture = Image::filled(4, 4, 3);
  for (size_t i = 0; i < picture.pixels.size(); i += 3) {
    picture.pixels[i] = static_cast<uint8_t>(red);
    picture.pixels[i + 1] = static_cast<uint8_t>(green);
    picture.pixels[i + 2] = static_cast<uint8_t>(blue);
  }
  return picture;
}

double distance(const Image& a, const Image& b) { return palette_distance(Palette(a), Palette(b)); }

TEST(Psnr, is_the_peak_signal_to_noise_ratio_of_bytes) {
  const Image grey = Image::filled(8, 8, 3, 100);
  EXPECT_DOUBLE_EQ(psnr_db(grey, Image::filled(8, 8, 3, 110)), 20.0 * std::log10(25.5));
  EXPECT_DOUBLE_EQ(psnr_db(Image::filled(8, 8, 3, 0), Image::filled(8, 8, 3, 255)), 0.0);
}

TEST(Psnr, counts_equal_pictures_as_100_db) {
  const Image grey = Image::filled(8, 8, 3, 100);
  EXPECT_DOUBLE_EQ(psnr_db(grey, grey), 100.0);
  EXPECT_THROW(psnr_db(grey, Image::filled(8, 9, 3, 100)), CheckFailure);
}

TEST(Palette, one_colour_moves_by_its_mean_shift_along_the_seven_axes) {
  // Red, and mean, differences: |30| + 0 + 0 + |10| + |30| + 0 + |30|.
  EXPECT_DOUBLE_EQ(distance(of_colour(100, 100, 100), of_colour(130, 100, 100)), 100.0 / 7);
  EXPECT_DOUBLE_EQ(distance(of_colour(0, 0, 0), of_colour(255, 255, 255)), 255.0 * 4 / 7);
}

TEST(Palette, knows_colours_and_no_places_or_sizes) {
  Image left = Image::filled(4, 2, 3);
  Image right = left;
  for (int x = 0; x < 2; ++x) {
    for (int c = 0; c < 3; ++c) {
      left.row(0)[x * 3 + c] = 200;
      right.row(1)[(x + 2) * 3 + c] = 200;
    }
  }
  EXPECT_EQ(distance(left, right), 0.0);
  EXPECT_EQ(distance(Image::filled(3, 5, 3, 70), Image::filled(8, 8, 3, 70)), 0.0);
}

TEST(Palette, is_a_distance) {
  const Image a = of_colour(10, 200, 30), b = of_colour(90, 20, 250), c = of_colour(0, 0, 0);
  EXPECT_EQ(distance(a, a), 0.0);
  EXPECT_DOUBLE_EQ(distance(a, b), distance(b, a));
  EXPECT_LE(distance(a, b), distance(a, c) + distance(c, b));
}

TEST(Palette, tells_what_the_three_channels_alone_do_not) {
  // Half red, half cyan; half yellow-less blue ... : equal channels, other colours.
  Image crossed = of_colour(255, 0, 0), uncrossed = of_colour(255, 255, 0);
  for (size_t i = 0; i < 24; i += 3) {
    crossed.pixels[i] = 0, crossed.pixels[i + 1] = 255;
    uncrossed.pixels[i] = 0, uncrossed.pixels[i + 1] = 0;
  }
  EXPECT_GT(distance(crossed, uncrossed), 10.0);
}

TEST(Palette, refuses_other_than_rgb) {
  EXPECT_THROW(Palette(Image::filled(2, 2, 1)), CheckFailure);
  EXPECT_THROW(Palette(Image{}), CheckFailure);
}

}  // namespace
}  // namespace darkroom
