#include "darkroom/image/png.h"

#include <gtest/gtest.h>

#include "darkroom/core/check.h"
#include "darkroom/image/decode.h"
#include "golden_files.h"

namespace darkroom {
namespace {

Image gradient(int width, int height, int num_channels) {
  Image image = Image::filled(width, height, num_channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i * 7 + i / 100);
  }
  return image;
}

const std::vector<PngText> kText = {{"prompt", "a caf\xC3\xA9, 50 mm"}, {"seed", "42"}, {"negative", ""}, {"seed", "again"}};

TEST(Png, comes_back_as_it_was) {
  for (const int side : {1, 2, 37}) {
    const Image rgb = gradient(side, side + 1, 3);
    EXPECT_EQ(*decode_image(as_bytes(encode_png(rgb)), kAnySize), rgb);
  }
}

TEST(Png, writes_grey_and_alpha) {
  const Image grey = gradient(5, 4, 1);
  const RowResult<Image> decoded = decode_image(as_bytes(encode_png(grey)), kAnySize);
  EXPECT_EQ(decoded->pixels[3], grey.pixels[1]);
  EXPECT_EQ(encode_png(grey)[25], 0);
  EXPECT_EQ(encode_png(gradient(5, 4, 4))[25], 6);
}

TEST(Png, same_arguments_give_the_same_bytes) { EXPECT_EQ(encode_png(gradient(40, 30, 3), kText), encode_png(gradient(40, 30, 3), kText)); }

TEST(Png, text_comes_back_in_order) {
  const std::string png = encode_png(gradient(3, 3, 3), kText);
  EXPECT_EQ(read_png_text(as_bytes(png)).value(), kText);
  EXPECT_NE(png.find("iTXtprompt"), std::string::npos);
  EXPECT_NE(png.find("tEXtseed"), std::string::npos);
  EXPECT_LT(png.find("tEXtseed"), png.find("IDAT"));
  EXPECT_TRUE(read_png_text(as_bytes(golden_bytes("files/png_rgb_8.png"))).value().empty());
}

TEST(Png, long_text_survives) {
  const std::vector<PngText> text = {{"recipe", std::string(300000, 'x')}};
  EXPECT_EQ(read_png_text(as_bytes(encode_png(gradient(3, 3, 3), text))).value(), text);
}

TEST(Png, damaged_text_is_corrupt_data) {
  std::string png = encode_png(gradient(3, 3, 3), kText);
  EXPECT_EQ(read_png_text(as_bytes(std::string("GIF89a"))).status().code(), StatusCode::kCorruptData);
  for (size_t size = 0; size + 12 < png.size(); size += 3) {
    EXPECT_EQ(read_png_text(as_bytes(png.substr(0, size))).status().code(), StatusCode::kCorruptData) << size;
  }
  png[png.find("tEXtseed") + 10] ^= 1;
  EXPECT_EQ(read_png_text(as_bytes(png)).status().code(), StatusCode::kCorruptData);
}

TEST(Png, refuses_impossible_arguments) {
  EXPECT_THROW((void)encode_png(Image{}), CheckFailure);
  for (const char* keyword : {"", " x", "x ", "a  b", "caf\xC3\xA9"}) {
    EXPECT_THROW((void)encode_png(gradient(1, 1, 1), {{keyword, "text"}}), CheckFailure) << keyword;
  }
  EXPECT_THROW((void)encode_png(gradient(1, 1, 1), {{std::string(80, 'k'), "text"}}), CheckFailure);
  EXPECT_THROW((void)encode_png(gradient(1, 1, 1), {{"key", std::string("a\0b", 3)}}), CheckFailure);
}

}  // namespace
}  // namespace darkroom
