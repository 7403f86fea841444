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

TEST(Png, a_keyword_may_hold_every_printable_character_and_no_other) {
  for (int code = 1; code < 256; ++code) {
    const std::string keyword = std::string("a") + static_cast<char>(code) + "b";
    if (code >= 0x20 && code <= 0x7E) {
      EXPECT_EQ(read_png_text(as_bytes(encode_png(gradient(1, 1, 3), {{keyword, "x"}}))).value(), (std::vector<PngText>{{keyword, "x"}}));
    } else {
      EXPECT_THROW((void)encode_png(gradient(1, 1, 3), {{keyword, "x"}}), CheckFailure) << code;
    }
  }
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}

/// The picture with one more chunk behind its header.
std::string with_chunk(const std::string& png, const std::string& name, const std::string& body) {
  uint32_t crc = ~0U;
  for (const char byte : name + body) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ (crc & 1U) * 0xEDB88320U;
    }
  }
  std::string result = png;
  return result.insert(33, big_endian(static_cast<uint32_t>(body.size())) + name + body + big_endian(~crc));
}

TEST(Png, international_text_is_read_behind_its_language_and_translation) {
  using namespace std::string_literals;
  const std::string png = encode_png(gradient(3, 3, 3), {});
  const auto text_of = [&](const std::string& body) { return read_png_text(as_bytes(with_chunk(png, "iTXt", body))).value(); };
  const std::vector<PngText> want = {{"Title", "a caf\xC3\xA9"}};
  EXPECT_EQ(text_of("Title\0\0\0en\0Titel\0a caf\xC3\xA9"s), want);
  EXPECT_EQ(text_of("Title\0\0\0\0\0a caf\xC3\xA9"s), want);
  EXPECT_TRUE(text_of("Title\0\1\0en\0Titel\0packed"s).empty());
  for (const std::string& cut : {"Title"s, "Title\0"s, "Title\0\0"s, "Title\0\0\0en"s, "Title\0\0\0en\0Titel"s}) {
    EXPECT_TRUE(text_of(cut).empty()) << cut.size();
  }
  EXPECT_EQ(read_png_text(as_bytes(with_chunk(png, "tEXt", "Title\0a caf\xE9"s))).value(), want);
}

TEST(Png, latin_1_of_keyword_and_text_becomes_utf8) {
  using namespace std::string_literals;
  const std::string png = encode_png(gradient(3, 3, 3), {});
  const auto text_of = [&](const std::string& name, const std::string& body) {
    return read_png_text(as_bytes(with_chunk(png, name, body))).value();
  };
  const std::vector<PngText> edges = {{"Title", "\x01\x7F\xC2\x80\xC2\xBF\xC3\x80\xC3\xBF"}};
  EXPECT_EQ(text_of("tEXt", "Title\0\x01\x7F\x80\xBF\xC0\xFF"s), edges) << "the first and last of one and of two bytes";
  const std::vector<PngText> keyword = {{"d\xC3\xA9j\xC3\xA0 vu", "\xC3\xA9"}};
  EXPECT_EQ(text_of("tEXt", "d\xE9j\xE0 vu\0\xE9"s), keyword);
  EXPECT_EQ(text_of("iTXt", "d\xE9j\xE0 vu\0\0\0\0\0\xC3\xA9"s), keyword) << "its keyword is Latin-1, its text is UTF-8 already";
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
