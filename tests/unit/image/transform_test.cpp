#include "darkroom/image/transform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "darkroom/core/check.h"
#include "darkroom/image/png.h"
#include "golden_files.h"

namespace darkroom {
namespace {

// Grey value = column + 16 * row, so that a crop shows where it lies.
Image numbered(int width, int height) {
  Image image = Image::filled(width, height, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>((i / 3) % static_cast<size_t>(width) + 16 * (i / 3 / static_cast<size_t>(width)));
  }
  return image;
}

TEST(Transform, equals_pillow_and_numpy_on_every_golden_file) {
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const TransformOptions options{.resolution = golden.at("resolution"),
                                   .filter = parse_filter(golden.at("filter").get<std::string>()).value()};
    const RowResult<TransformedImage> image = transform_image(as_bytes(golden_bytes("files/" + name)), options, kAnySize);
    ASSERT_TRUE(image.is_ok()) << name;
    EXPECT_EQ(image->width, golden.at("width"));
    EXPECT_EQ(image->height, golden.at("height"));
    Sha256 digest;
    digest.update(std::as_bytes(std::span(image->chw)));
    EXPECT_EQ(digest.finish_hex(), golden.at("transform_sha256")) << name;
  }
}

TEST(Transform, crops_at_half_the_play_rounded_down) {
  const TransformOptions options{.resolution = 4};
  EXPECT_EQ(resize_and_crop(numbered(7, 4), options).pixels[0], 1);  // (7 - 4) / 2
  EXPECT_EQ(resize_and_crop(numbered(8, 4), options).pixels[0], 2);
  EXPECT_EQ(resize_and_crop(numbered(4, 7), options).pixels[0], 16);
}

// round(play / 2) of Python, which takes halves to the even neighbour, for play 0..7: 0 0 1 2 2 2 3 4.
TEST(Transform, crops_at_half_the_play_rounded_to_even_as_torchvision) {
  const TransformOptions options{.resolution = 4, .crop = Crop::kCenterRound};
  const std::vector<int> offsets = {0, 0, 1, 2, 2, 2, 3, 4};
  for (int play = 0; play < 8; ++play) {
    const int want = offsets[static_cast<size_t>(play)];
    EXPECT_EQ(resize_and_crop(numbered(4 + play, 4), options).pixels[0], want) << play;
    EXPECT_EQ(resize_and_crop(numbered(4, 4 + play), options).pixels[0], 16 * want) << play;
  }
}

TEST(Transform, leaves_a_fitting_square_untouched) {
  EXPECT_EQ(resize_and_crop(numbered(8, 8), {.resolution = 8, .filter = Filter::kLanczos}), numbered(8, 8));
}

TEST(Transform, crops_at_random_within_the_play) {
  const TransformOptions options{.resolution = 4, .crop = Crop::kRandom};
  EXPECT_EQ(resize_and_crop(numbered(7, 4), options, {0.0, 0.9}).pixels[0], 0);
  EXPECT_EQ(resize_and_crop(numbered(7, 4), options, {0.25, 0.0}).pixels[0], 1);
  EXPECT_EQ(resize_and_crop(numbered(7, 4), options, {std::nextafter(1.0, 0.0), 0.0}).pixels[0], 3);
  EXPECT_EQ(resize_and_crop(numbered(4, 7), options, {0.5, 0.5}).pixels[0], 2 * 16);
}

TEST(Transform, refuses_a_line_that_would_become_a_giant) {
  const std::string line = encode_png(Image::filled(60000, 1, 3));
  const RowResult<TransformedImage> image = transform_image(as_bytes(line), {.resolution = 256}, kAnySize);
  ASSERT_FALSE(image.is_ok());
  EXPECT_EQ(image.error().name(), "bomb");
}

// A JPEG is resized while it is decoded, unless its rows come first or its width stays.
TEST(Transform, gives_the_same_bits_with_and_without_the_whole_picture) {
  for (const auto& golden : golden_files()) {
    const std::string bytes = golden_bytes("files/" + golden.at("name").get<std::string>());
    for (const int resolution : {1, 7, 16, 33, 37, 45, 64, 101}) {
      for (const Crop crop : {Crop::kCenter, Crop::kCenterRound, Crop::kRandom}) {
        for (const Orientation orientation : {Orientation::kIgnore, Orientation::kApply}) {
          const TransformOptions options{
              .resolution = resolution, .filter = static_cast<Filter>(resolution % 5), .crop = crop, .orientation = orientation};
          const CropDraw draw{0.3, 0.8};
          const Image square = resize_and_crop(decode_image(as_bytes(bytes), kAnySize, orientation).value(), options, draw);
          std::vector<float> want(square.pixels.size());
          normalise_chw(square, want);
          EXPECT_EQ(transform_image(as_bytes(bytes), options, kAnySize, draw).value().chw, want) << golden.at("name") << " " << resolution;
        }
      }
    }
  }
}

TEST(Transform, a_cut_jpeg_is_truncated_even_where_the_crop_needs_less) {
  const std::string bytes = golden_bytes("files/jpeg_grey.jpg");
  const RowResult<TransformedImage> image = transform_image(as_bytes(bytes).first(bytes.size() - 40), {.resolution = 16}, kAnySize);
  ASSERT_FALSE(image.is_ok());
  EXPECT_EQ(image.error().name(), "truncated");
}

TEST(Transform, passes_on_the_decoders_error) {
  const RowResult<TransformedImage> image = transform_image(as_bytes(std::string("no picture")), {}, {});
  ASSERT_FALSE(image.is_ok());
  EXPECT_EQ(image.error().name(), "not_an_image");
}

TEST(Transform, normalises_to_planes_and_back) {
  Image image = Image::filled(256, 1, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i % 3 == 0 ? i / 3 : i % 3 == 1 ? 255 - i / 3 : 7);
  }
  std::vector<float> chw(image.pixels.size());
  normalise_chw(image, chw);
  EXPECT_EQ(chw[0], -1.0F);
  EXPECT_EQ(chw[255], 1.0F);
  EXPECT_EQ(chw[256], 1.0F);
  EXPECT_EQ(chw[512], (7.0F / 255.0F - 0.5F) / 0.5F);
  EXPECT_EQ(denormalise_chw(chw, 256, 1, 3), image);
  EXPECT_THROW(normalise_chw(image, std::span(chw).first(10)), CheckFailure);
}

TEST(Transform, denormalises_what_lies_outside_to_the_nearest_colour) {
  const std::vector<float> values = {-3, 3, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  EXPECT_EQ(denormalise_chw(values, 4, 1, 1).pixels, (std::vector<uint8_t>{0, 255, 0, 255}));
}

TEST(Transform, validates_the_resolution) {
  EXPECT_TRUE(TransformOptions{.resolution = 1}.validate().is_ok());
  EXPECT_EQ(TransformOptions{.resolution = 0}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TransformOptions{.resolution = 16385}.validate().code(), StatusCode::kInvalidArgument);
}

TEST(Transform, parses_the_names_of_flags) {
  EXPECT_EQ(parse_filter("lanczos").value(), Filter::kLanczos);
  EXPECT_EQ(parse_crop("random").value(), Crop::kRandom);
  EXPECT_EQ(parse_crop("center_round").value(), Crop::kCenterRound);
  EXPECT_EQ(parse_orientation("apply").value(), Orientation::kApply);
  EXPECT_EQ(filter_name(Filter::kHamming), "hamming");
  EXPECT_EQ(crop_name(Crop::kCenterRound), "center_round");
  EXPECT_EQ(orientation_name(Orientation::kIgnore), "ignore");
  const Status status = parse_filter("nearest").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the resize filter must be bilinear|bicubic|lanczos|hamming|box, got: nearest");
}

}  // namespace
}  // namespace darkroom
