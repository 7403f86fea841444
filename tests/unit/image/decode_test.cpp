#include "darkroom/image/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "darkroom/core/random.h"
#include "golden_files.h"
#include "webp_on_canvas.h"

namespace darkroom {
namespace {

using namespace std::string_literals;

std::string decode_error(const std::string& bytes, const ImageLimits& limits = kAnySize) {
  const RowResult<Image> image = decode_image(as_bytes(bytes), limits);
  return image.is_ok() ? "ok" : image.error().name();
}

std::string repeat_last_scan(const std::string& jpeg, int times) {
  const size_t scan = jpeg.rfind("\xFF\xDA");
  const size_t end = jpeg.rfind("\xFF\xD9");
  std::string bomb = jpeg.substr(0, end);
  for (int i = 0; i < times; ++i) {
    bomb += jpeg.substr(scan, end - scan);
  }
  return bomb + jpeg.substr(end);
}

TEST(Decode, equals_pillow_on_every_golden_file) {
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const RowResult<Image> image = decode_image(as_bytes(golden_bytes("files/" + name)), kAnySize);
    ASSERT_TRUE(image.is_ok()) << name << ": " << image.error().detail;
    EXPECT_EQ(image->num_channels, 3);
    EXPECT_EQ(pixel_digest(*image), golden.at("sha256")) << name;
  }
}

// Pillow's pixels, alpha left out: black around the frame, and within it the colour whatever its alpha.
TEST(Decode, puts_a_first_frame_of_webp_on_its_canvas) {
  const RowResult<Image> image = decode_image(as_bytes(webp_on_canvas(7, 6, 2, 4, 3, 1, {200, 100, 50, 128})), kAnySize);
  ASSERT_TRUE(image.is_ok()) << image.error().detail;
  Image want = Image::filled(7, 6, 3);
  std::ranges::fill(want.pixels, uint8_t{0});
  for (int x = 2; x < 5; ++x) {
    std::ranges::copy(std::array<uint8_t, 3>{200, 100, 50}, want.row(4) + 3 * x);
  }
  EXPECT_EQ(*image, want);
  EXPECT_EQ(decode_error(webp_on_canvas(7, 6, 2, 4, 3, 3, {1, 2, 3, 4})), "decode_failed");  // Beyond the canvas.
}

TEST(Decode, applies_the_orientation_as_pillow_does) {
  std::set<int> seen;
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const std::string bytes = golden_bytes("files/" + name);
    const RowResult<Image> image = decode_image(as_bytes(bytes), kAnySize, Orientation::kApply);
    ASSERT_TRUE(image.is_ok()) << name;
    EXPECT_EQ(image->width, golden.at("upright_width")) << name;
    EXPECT_EQ(pixel_digest(*image), golden.at("upright_sha256")) << name;
    seen.insert(read_orientation(as_bytes(bytes)));
  }
  EXPECT_EQ(seen, (std::set{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Decode, reads_no_orientation_where_there_is_none) {
  EXPECT_EQ(read_orientation({}), 1);
  EXPECT_EQ(read_orientation(as_bytes("hello"s)), 1);
  EXPECT_EQ(read_orientation(as_bytes(golden_bytes("files/jpeg_420.jpg"))), 1);
  const std::string turned = golden_bytes("files/orientation_6.jpg");
  for (size_t size = 0; size < turned.size(); ++size) {
    const int orientation = read_orientation(as_bytes(turned.substr(0, size)));
    ASSERT_TRUE(orientation == 1 || orientation == 6) << size;
  }
}

TEST(Decode, orientations_of_a_known_picture) {
  const Image abc{3, 1, 1, {1, 2, 3}};
  EXPECT_EQ(apply_orientation(abc, 1), abc);
  EXPECT_EQ(apply_orientation(abc, 9), abc);
  EXPECT_EQ(apply_orientation(abc, 3).pixels, (std::vector<uint8_t>{3, 2, 1}));
  EXPECT_EQ(apply_orientation(abc, 6), (Image{1, 3, 1, {1, 2, 3}}));
  EXPECT_EQ(apply_orientation(abc, 8), (Image{1, 3, 1, {3, 2, 1}}));
}

TEST(Decode, calls_every_cut_file_truncated) {
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const std::string whole = golden_bytes("files/" + name);
    // A PNG has all its pixels before the last chunk, whose loss Pillow does not mind either.
    const size_t needed = name.ends_with("png") ? whole.size() - 12 : whole.size();
    for (size_t size = 1; size < needed; size += 1 + size / 20) {
      ASSERT_EQ(decode_error(whole.substr(0, size)), "truncated") << name << " cut at " << size;
    }
    ASSERT_EQ(decode_error(whole.substr(0, needed - 1)), "truncated") << name;
    ASSERT_EQ(decode_error(whole.substr(0, needed)), "ok") << name;
  }
}

TEST(Decode, survives_damaged_bytes) {
  const CounterRandom random(1, Purpose::kSelect, 0, "damage");
  uint64_t draw = 0;
  int num_failed = 0;
  for (const auto& golden : golden_files()) {
    const std::string whole = golden_bytes("files/" + golden.at("name").get<std::string>());
    for (int i = 0; i < 60; ++i) {
      std::string damaged = whole;
      for (int change = 0; change <= i % 4; ++change) {
        damaged[random.below(draw, static_cast<uint32_t>(whole.size()))] = static_cast<char>(random.bits(draw + 1));
        draw += 2;
      }
      const RowResult<Image> image = decode_image(as_bytes(damaged), {.min_size = 1, .max_pixels = 1'000'000}, Orientation::kApply);
      if (image.is_ok()) {
        ASSERT_EQ(image->pixels.size(), image->row_bytes() * static_cast<size_t>(image->height));
      } else {
        ++num_failed;
      }
    }
  }
  EXPECT_GT(num_failed, 300);
}

TEST(Decode, refuses_bytes_that_are_no_picture) {
  EXPECT_EQ(decode_error(""), "not_an_image");
  EXPECT_EQ(decode_error("hello"), "not_an_image");
  EXPECT_EQ(decode_error("GIF89a\x10\0\x10\0"s), "unsupported_format");
  EXPECT_EQ(decode_error("\xFF\xD8\xFF\xE0"s + std::string(2000, '\x55')), "truncated");
}

TEST(Decode, judges_the_header_before_it_takes_memory) {
  std::string huge = golden_bytes("files/png_rgb_8.png");
  huge.replace(16, 8, "\0\x01\x86\xA0\0\x01\x86\xA0"s);  // 100000 x 100000
  EXPECT_EQ(decode_error(huge), "bomb");
  EXPECT_EQ(decode_error(golden_bytes("files/jpeg_444.jpg"), {.min_size = 38}), "too_small");
  EXPECT_EQ(decode_error(golden_bytes("files/webp_lossy.webp"), {.max_aspect = 1.1}), "bad_aspect");
}

TEST(Decode, refuses_a_jpeg_of_endless_scans) {
  const std::string jpeg = golden_bytes("files/jpeg_444_progressive.jpg");
  EXPECT_EQ(decode_error(repeat_last_scan(jpeg, 100)), "ok");
  EXPECT_EQ(decode_error(repeat_last_scan(jpeg, 5000)), "bomb");
}

TEST(Decode, does_not_inflate_metadata) {
  // The profile of this file inflates 900:1; a profile of damaged data shows that nobody looks at it.
  std::string png = golden_bytes("files/png_profile.png");
  EXPECT_EQ(decode_error(png), "ok");
  png[png.find("iCCP") + 20] ^= 0x55;
  EXPECT_EQ(decode_error(png), "ok");
}

TEST(Decode, finds_damaged_png_data) {
  std::string png = golden_bytes("files/png_rgb_8.png");
  png[png.find("IDAT") + 50] ^= 0x10;
  EXPECT_EQ(decode_error(png), "decode_failed");
}

}  // namespace
}  // namespace darkroom
