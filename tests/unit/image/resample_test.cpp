#include "darkroom/image/resample.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "darkroom/image/transform.h"
#include "golden_files.h"
#include "vector_unit.h"

namespace darkroom {
namespace {

// DARKROOM_VECTOR_UNIT=AVX2 holds the whole program to that unit: tools/check/every_processor.py runs it on each.
class AskedVectorUnit : public testing::Environment {
 public:
  void SetUp() override {
    const char* asked = std::getenv("DARKROOM_VECTOR_UNIT");
    for (int64_t rest = asked == nullptr ? 0 : hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
      if (hwy::TargetName(rest & -rest) == std::string(asked)) {
        hold_to(rest & -rest);
      }
    }
    ASSERT_TRUE(asked == nullptr || held_vector_units != 0) << "this processor has no vector unit " << asked;
    asked_ = hwy::SupportedTargets();
  }
  // Whatever a test has set, it has put back: the later ones were to run on the unit that was asked for.
  void TearDown() override { EXPECT_EQ(hwy::SupportedTargets(), asked_); }

 private:
  int64_t asked_ = 0;
};
[[maybe_unused]] const auto* const kAskedVectorUnit = testing::AddGlobalTestEnvironment(new AskedVectorUnit);

Image noise(uint64_t seed, int width, int height, int num_channels, bool extremes = false) {
  const CounterRandom random(seed, Purpose::kSelect, 0, "resize");
  Image image = Image::filled(width, height, num_channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const auto value = static_cast<uint8_t>(random.bits(i) >> 24);
    image.pixels[i] = !extremes ? value : value > 127 ? 255 : 0;
  }
  return image;
}

void expect_goldens() {
  const nlohmann::json goldens = nlohmann::json::parse(golden_bytes("resize.json"));
  ASSERT_EQ(goldens.at("cases").size(), 400U);
  for (const auto& golden : goldens.at("cases")) {
    const Image image = noise(golden.at("seed"), golden.at("width"), golden.at("height"), golden.at("channels"), golden.at("extremes"));
    const Filter filter = parse_filter(golden.at("filter").get<std::string>()).value();
    EXPECT_EQ(pixel_digest(resize(image, golden.at("to_width"), golden.at("to_height"), filter)), golden.at("sha256")) << golden;
  }
}

// A square of two-by-two quadrants 0xE1 and 0x1E, as in Pillow's own tests.
Image checkerboard(int size) {
  Image image = Image::filled(size, size, 1, 0x1E);
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      if ((y < size / 2) == (x < size / 2)) {
        image.row(y)[x] = 0xE1;
      }
    }
  }
  return image;
}

std::vector<int> top_left(const Image& image, int columns, int rows) {
  std::vector<int> values;
  for (int y = 0; y < rows; ++y) {
    values.insert(values.end(), image.row(y), image.row(y) + columns);
  }
  return values;
}

TEST(Resample, equals_pillow_on_400_random_cases) { expect_goldens(); }

// From every byte, in plain C.
void expect_normalised_planes() {
  const Image image = noise(11, 1031, 1, 3);
  std::vector<float> planes(3 * 1031);
  normalise_chw(image, planes);
  for (size_t i = 0; i < planes.size(); ++i) {
    const float value = image.pixels[i % 1031 * 3 + i / 1031];
    ASSERT_EQ(planes[i], (value / 255.0F - 0.5F) / 0.5F) << i;
  }
}

TEST(Resample, gives_the_same_bits_on_every_vector_unit) {
  std::string units;
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    const HeldVectorUnit held(target);
    ASSERT_FALSE(hwy::GetChosenTarget().IsInitialized()) << "the unit would stay the one chosen first";
    expect_goldens();
    expect_normalised_planes();
    units += std::string(hwy::TargetName(target)) + " ";
  }
  RecordProperty("vector_units", units);
}

TEST(Resample, equals_the_vectors_of_pillows_tests) {
  EXPECT_EQ(top_left(resize(checkerboard(8), 4, 4, Filter::kBilinear), 2, 2), (std::vector{0xE1, 0xC9, 0xC9, 0xB7}));
  EXPECT_EQ(top_left(resize(checkerboard(2), 4, 4, Filter::kBilinear), 2, 2), (std::vector{0xE1, 0xB0, 0xB0, 0x98}));
  EXPECT_EQ(top_left(resize(checkerboard(12), 6, 6, Filter::kBicubic), 3, 3),
            (std::vector{0xE1, 0xE3, 0xD4, 0xE3, 0xE5, 0xD6, 0xD4, 0xD6, 0xC9}));
  EXPECT_EQ(top_left(resize(checkerboard(16), 8, 8, Filter::kLanczos), 4, 1), (std::vector{0xE1, 0xE0, 0xE4, 0xD7}));
}

TEST(Resample, keeps_a_flat_colour_flat) {
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic, Filter::kLanczos, Filter::kHamming, Filter::kBox}) {
    EXPECT_EQ(resize(Image::filled(512, 9, 3, 0x40), 9, 512, filter), Image::filled(9, 512, 3, 0x40));
    EXPECT_EQ(resize(Image::filled(1, 1, 1, 255), 300, 1, filter), Image::filled(300, 1, 1, 255));
    EXPECT_EQ(resize(Image::filled(301, 299, 3, 255), 1, 1, filter), Image::filled(1, 1, 3, 255));
  }
}

TEST(Resample, leaves_a_fitting_picture_untouched) {
  const Image rgba = noise(3, 17, 5, 4);
  EXPECT_EQ(resize(rgba, 17, 5, Filter::kLanczos), rgba);
}

TEST(Resample, a_window_equals_the_cut_of_the_whole) {
  const CounterRandom random(9, Purpose::kSelect, 0, "windows");
  for (uint64_t i = 0; i < 60; ++i) {
    const auto draw = [&](uint64_t j, uint32_t bound) { return static_cast<int>(random.below(i * 10 + j, bound)); };
    const Image image = noise(i, 1 + draw(0, 90), 1 + draw(1, 90), i % 3 == 0 ? 1 : i % 3 == 1 ? 3 : 4);
    const int width = i % 5 == 0 ? image.width : 1 + draw(2, 90);
    const int height = i % 7 == 0 ? image.height : 1 + draw(3, 90);
    const int left = draw(4, static_cast<uint32_t>(width));
    const int top = draw(5, static_cast<uint32_t>(height));
    const Window window{left, top, 1 + draw(6, static_cast<uint32_t>(width - left)), 1 + draw(7, static_cast<uint32_t>(height - top))};
    const auto filter = static_cast<Filter>(draw(8, 5));
    const Image whole = resize(image, width, height, filter);
    const Image part = resize_window(image, width, height, filter, window);
    for (int y = 0; y < window.height; ++y) {
      const uint8_t* want = whole.row(top + y) + left * image.num_channels;
      ASSERT_TRUE(std::equal(part.row(y), part.row(y) + part.row_bytes(), want)) << "case " << i << " row " << y;
    }
  }
}

TEST(Resample, refuses_impossible_arguments) {
  const Image image = noise(1, 4, 4, 3);
  EXPECT_THROW((void)resize(image, 0, 4, Filter::kBox), CheckFailure);
  EXPECT_THROW((void)resize(Image{}, 4, 4, Filter::kBox), CheckFailure);
  EXPECT_THROW((void)resize_window(image, 8, 8, Filter::kBox, {4, 0, 5, 8}), CheckFailure);
  EXPECT_THROW((void)resize_window(image, 8, 8, Filter::kBox, {0, 0, 0, 8}), CheckFailure);
  Image short_of_pixels = image;
  short_of_pixels.pixels.pop_back();
  EXPECT_THROW((void)resize(short_of_pixels, 8, 8, Filter::kBox), CheckFailure);
}

}  // namespace
}  // namespace darkroom
