#include "darkroom/image/watermark.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>

#include <jpeglib.h>

#include "darkroom/image/decode.h"
#include "darkroom/image/resample.h"

namespace darkroom {
namespace {

/// A picture with the spectrum of photographs: noise of every scale, the coarse ones strongest.
Image picture(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> values(static_cast<size_t>(width) * height * 3, 128.0);
  for (int side = 2; side <= 128; side *= 2) {
    Image noise = Image::filled(side, side, 3);
    for (uint8_t& value : noise.pixels) {
      value = static_cast<uint8_t>(random() & 0xFFU);
    }
    const Image grown = resize(noise, width, height, Filter::kBicubic);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += (grown.pixels[i] - 128.0) / std::sqrt(side);
    }
  }
  Image image = Image::filled(width, height, 3);
  for (size_t i = 0; i < values.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(std::clamp(values[i], 0.0, 255.0));
  }
  return image;
}

Image marked(Image image) {
  EXPECT_TRUE(add_watermark(image));
  return image;
}

Image through_jpeg(const Image& image, int quality) {
  jpeg_compress_struct coder{};
  jpeg_error_mgr errors{};
  coder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&coder);
  unsigned char* bytes = nullptr;
  unsigned long num_bytes = 0;
  jpeg_mem_dest(&coder, &bytes, &num_bytes);
  coder.image_width = static_cast<JDIMENSION>(image.width);
  coder.image_height = static_cast<JDIMENSION>(image.height);
  coder.input_components = 3;
  coder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&coder);
  jpeg_set_quality(&coder, quality, TRUE);
  jpeg_start_compress(&coder, TRUE);
  while (coder.next_scanline < coder.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.row(static_cast<int>(coder.next_scanline)));
    jpeg_write_scanlines(&coder, &row, 1);
  }
  jpeg_finish_compress(&coder);
  jpeg_destroy_compress(&coder);
  const auto decoded = decode_image(std::as_bytes(std::span(bytes, num_bytes)), {});
  EXPECT_TRUE(decoded.is_ok());
  std::free(bytes);
  return decoded.value();
}

double psnr(const Image& a, const Image& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    sum += std::pow(a.pixels[i] - b.pixels[i], 2);
  }
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.pixels.size()) / sum);
}

TEST(watermark, is_read_where_it_was_written_and_nowhere_else) {
  for (const auto& [width, height] : {std::pair(128, 128), std::pair(256, 256), std::pair(512, 384), std::pair(131, 257)}) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const Image plain = picture(width, height, seed);
      EXPECT_FALSE(read_watermark(plain).is_marked) << width << " " << seed;
      const WatermarkReading reading = read_watermark(marked(plain));
      EXPECT_EQ(reading.bits, kWatermarkBits) << width << " " << seed;
      EXPECT_EQ(reading.num_right, 32);
    }
  }
}

TEST(watermark, cannot_be_seen) {
  for (const int side : {128, 256, 512}) {
    const Image plain = picture(side, side, 4);
    EXPECT_GE(psnr(plain, marked(plain)), 42.0) << side;
  }
  const Image grey = Image::filled(256, 256, 3, 128);
  EXPECT_GE(psnr(grey, marked(grey)), 42.0);
}

TEST(watermark, outlives_jpeg) {
  for (const int side : {128, 256, 512}) {
    for (const int quality : {90, 75, 50}) {
      EXPECT_TRUE(read_watermark(through_jpeg(marked(picture(side, side, 5)), quality)).is_marked) << side << " " << quality;
    }
  }
  EXPECT_FALSE(read_watermark(through_jpeg(picture(256, 256, 5), 75)).is_marked);
}

TEST(watermark, outlives_resizing_down_to_128_pixels_a_side) {
  const Image image = marked(picture(256, 256, 6));
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic, Filter::kLanczos}) {
    for (const auto& [width, height] :
         {std::pair(128, 128), std::pair(200, 200), std::pair(512, 512), std::pair(384, 256), std::pair(777, 333)}) {
      EXPECT_TRUE(read_watermark(resize(image, width, height, filter)).is_marked) << width << " " << height;
    }
  }
  EXPECT_TRUE(read_watermark(through_jpeg(resize(image, 192, 192, Filter::kBicubic), 75)).is_marked);
}

TEST(watermark, is_lost_by_cutting) {  // As docs/formats/watermark.md says.
  const Image image = marked(picture(256, 256, 7));
  EXPECT_FALSE(read_watermark(resize_window(image, 256, 256, Filter::kBox, {.left = 40, .top = 0, .width = 200, .height = 256})).is_marked);
}

TEST(watermark, leaves_small_pictures_as_they_are) {
  const Image small = picture(127, 300, 8);
  Image same = small;
  EXPECT_FALSE(add_watermark(same));
  EXPECT_EQ(same, small);
}

TEST(watermark, gives_the_same_bytes_each_time) { EXPECT_EQ(marked(picture(200, 150, 9)), marked(picture(200, 150, 9))); }

TEST(watermark, reads_pictures_of_any_size) {
  for (const int side : {1, 2, 7}) {
    EXPECT_FALSE(read_watermark(Image::filled(side, side, 3, 99)).is_marked) << side;
  }
}

}  // namespace
}  // namespace darkroom
