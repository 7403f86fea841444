#include "darkroom/image/jpeg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "darkroom/core/check.h"
#include "darkroom/image/decode.h"

namespace darkroom {
namespace {

Image sloping_picture(int width, int height, int num_channels) {
  Image image = Image::filled(width, height, num_channels, 0);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const size_t pixel = i / static_cast<size_t>(num_channels);
    image.pixels[i] = static_cast<uint8_t>(pixel % static_cast<size_t>(width) * 200 / static_cast<size_t>(width) + 40 * (i % 3 == 0));
  }
  return image;
}

Image read_back(const std::string& jpeg) {
  RowResult<Image> image = decode_image(std::as_bytes(std::span(jpeg)), kAnySize);
  EXPECT_TRUE(image.is_ok());
  return image.is_ok() ? std::move(image).value() : Image();
}

TEST(jpeg, what_is_written_is_read_back_nearly_as_it_was) {
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(8, 8), std::pair(9, 7), std::pair(64, 31)}) {
    const Image image = sloping_picture(width, height, 3);
    const std::string jpeg = encode_jpeg(image);
    EXPECT_EQ(jpeg, encode_jpeg(image));
    const Image again = read_back(jpeg);
    ASSERT_EQ(again.width, width);
    ASSERT_EQ(again.height, height);
    double sum = 0.0;
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      sum += std::abs(image.pixels[i] - again.pixels[i]);
    }
    EXPECT_LT(sum / static_cast<double>(image.pixels.size()), 4.0) << width;
  }
  EXPECT_EQ(read_back(encode_jpeg(sloping_picture(20, 10, 1))).width, 20);
  EXPECT_LT(encode_jpeg(sloping_picture(64, 64, 3), 20).size(), encode_jpeg(sloping_picture(64, 64, 3), 99).size());
}

TEST(jpeg, what_no_jpeg_can_hold_is_a_broken_promise) {
  EXPECT_THROW(encode_jpeg(sloping_picture(2, 2, 4)), CheckFailure);
  for (int i = 0; i < 50; ++i) {  // Often: a leak checker takes a lost block for a kept one where an old pointer to it still lies about.
    EXPECT_THROW(encode_jpeg(sloping_picture(70'000, 1, 3)), CheckFailure);
  }
}

}  // namespace
}  // namespace darkroom
