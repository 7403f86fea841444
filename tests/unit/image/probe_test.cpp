#include "darkroom/image/probe.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "golden_files.h"

namespace darkroom {
namespace {

using namespace std::string_literals;

std::string probe_error(const std::string& bytes, const ImageLimits& limits = kAnySize) {
  const RowResult<ImageHeader> header = probe_image(as_bytes(bytes), limits);
  return header.is_ok() ? "ok" : header.error().name();
}

std::string big_endian(uint32_t value, int num_bytes) {
  std::string bytes;
  for (int shift = 8 * (num_bytes - 1); shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}

std::string png_header(uint32_t width, uint32_t height, int depth = 8, int colour_type = 2) {
  return "\x89PNG\r\n\x1A\n\0\0\0\rIHDR"s + big_endian(width, 4) + big_endian(height, 4) + static_cast<char>(depth) +
         static_cast<char>(colour_type) + "\0\0\0crc!"s;
}

std::string jpeg_header(uint32_t width, uint32_t height, int components = 3, int precision = 8, char frame = '\xC0') {
  return "\xFF\xD8\xFF\xE0\0\x04xx\xFF"s + frame + "\0\x11"s + static_cast<char>(precision) + big_endian(height, 2) + big_endian(width, 2) +
         static_cast<char>(components) + std::string(9, '\1');
}

TEST(Probe, reads_size_and_format_of_every_golden_file) {
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const RowResult<ImageHeader> header = probe_image(as_bytes(golden_bytes("files/" + name)), {});
    ASSERT_TRUE(header.is_ok()) << name << header.error().detail;
    EXPECT_EQ(header->width, golden.at("width")) << name;
    EXPECT_EQ(header->height, golden.at("height")) << name;
    EXPECT_EQ(mime_type(header->format), name.ends_with("jpg") ? "image/jpeg" : name.ends_with("png") ? "image/png" : "image/webp");
  }
}

TEST(Probe, calls_every_cut_header_truncated_and_never_changes_its_mind) {
  for (const char* name : {"jpeg_420_progressive.jpg", "orientation_3.jpg", "png_profile.png", "webp_lossy.webp", "webp_lossless.webp",
                           "webp_lossless_alpha.webp", "webp_animated.webp"}) {
    const std::string whole = golden_bytes("files/"s + name);
    bool was_ok = false;
    for (size_t size = 1; size <= whole.size(); ++size) {
      const std::string error = probe_error(whole.substr(0, size));
      if (error == "ok") {
        was_ok = true;
      } else {
        ASSERT_EQ(error, "truncated") << name << " cut at " << size;
        ASSERT_FALSE(was_ok) << name << " cut at " << size;
      }
    }
    EXPECT_TRUE(was_ok);
  }
}

// One byte less and the size is not known yet; signature, chunk heads and the fields that hold the size are all it takes.
TEST(Probe, needs_no_byte_behind_the_size) {
  const std::vector<std::pair<const char*, size_t>> cases = {
      {"png_rgb_8.png", 33}, {"webp_lossy.webp", 30}, {"webp_lossless.webp", 25}, {"webp_animated.webp", 30}};
  for (const auto& [name, size] : cases) {
    const std::string whole = golden_bytes("files/"s + name);
    EXPECT_EQ(probe_error(whole.substr(0, size)), "ok") << name;
    EXPECT_EQ(probe_error(whole.substr(0, size - 1)), "truncated") << name;
  }
}

// Table 11.1 of the PNG standard.
TEST(Probe, knows_the_pixel_formats_of_the_png_standard) {
  const std::map<int, std::set<int>> depths_of = {{0, {1, 2, 4, 8, 16}}, {2, {8, 16}}, {3, {1, 2, 4, 8}}, {4, {8, 16}}, {6, {8, 16}}};
  for (int colour_type = 0; colour_type < 9; ++colour_type) {
    for (int depth = 0; depth < 34; ++depth) {
      const auto depths = depths_of.find(colour_type);
      const bool is_known = depths != depths_of.end() && depths->second.contains(depth);
      EXPECT_EQ(probe_error(png_header(64, 64, depth, colour_type)), is_known ? "ok" : "not_an_image") << colour_type << " " << depth;
    }
  }
}

TEST(Probe, knows_pictures_that_it_cannot_decode) {
  EXPECT_EQ(probe_error("GIF89a\x10\0\x10\0"s), "unsupported_format");
  EXPECT_EQ(probe_error("\0\0\0\x1C"
                        "ftypavif\0\0\0\0mif1miaf"s),
            "unsupported_format");
  EXPECT_EQ(probe_error("\0\0\0\x1C"
                        "ftypmif1\0\0\0\0heicavif"s),
            "unsupported_format");
  EXPECT_EQ(probe_error(jpeg_header(64, 64, 2)), "unsupported_format");
  EXPECT_EQ(probe_error(jpeg_header(64, 64, 3, 12)), "unsupported_format");
}

// Some releases of libjpeg-turbo decode lossless frames, others do not.
TEST(Probe, takes_the_kinds_of_jpeg_frames_that_every_release_decodes) {
  for (int marker = 0xC0; marker <= 0xCF; ++marker) {
    if (marker == 0xC4 || marker == 0xC8 || marker == 0xCC) {
      continue;  // Tables and extensions, no frames.
    }
    const bool is_taken = marker <= 0xC2 || marker == 0xC9 || marker == 0xCA;
    EXPECT_EQ(probe_error(jpeg_header(64, 64, 3, 8, static_cast<char>(marker))), is_taken ? "ok" : "unsupported_format") << marker;
  }
}

TEST(Probe, calls_other_bytes_no_image) {
  EXPECT_EQ(probe_error(""), "not_an_image");
  EXPECT_EQ(probe_error("<!DOCTYPE html><html></html>"), "not_an_image");
  EXPECT_EQ(probe_error(std::string(100, '\0')), "not_an_image");
  EXPECT_EQ(probe_error("\0\0\0\x18"
                        "ftypmp42\0\0\0\0isom"s),
            "not_an_image");
  EXPECT_EQ(probe_error("RIFF\x10\0\0\0WAVEfmt "s + std::string(40, '\0')), "not_an_image");
  EXPECT_EQ(probe_error("RIFF\x10\0\0\0WEBPJUNK"s + std::string(40, '\0')), "not_an_image");
  EXPECT_EQ(probe_error("\xFF\xD8\xFF\xD9"s + std::string(40, 'x')), "not_an_image");
  EXPECT_EQ(probe_error("\xFF\xD8\xFF\xDA\0\x08"s + std::string(40, 'x')), "not_an_image");
  EXPECT_EQ(probe_error("\xFF\xD8\xFF\xE0\0\x01"s + std::string(40, 'x')), "not_an_image");
}

TEST(Probe, refuses_impossible_headers) {
  EXPECT_EQ(probe_error(png_header(0, 64)), "not_an_image");
  EXPECT_EQ(probe_error(png_header(64, 0x80000000)), "not_an_image");
  EXPECT_EQ(probe_error(png_header(64, 64, 3, 2)), "not_an_image");
  EXPECT_EQ(probe_error(png_header(64, 64, 8, 7)), "not_an_image");
  // Compression, filter and interlace methods: the standard has the first of each, and two of the last.
  for (const auto& [place, method, want] : {std::tuple(26, '\1', "not_an_image"), std::tuple(27, '\1', "not_an_image"),
                                            std::tuple(28, '\1', "ok"), std::tuple(28, '\2', "not_an_image")}) {
    std::string png = png_header(64, 64);
    png[static_cast<size_t>(place)] = method;
    EXPECT_EQ(probe_error(png), want) << place;
  }
  EXPECT_EQ(probe_error(jpeg_header(0, 64)), "not_an_image");
  EXPECT_EQ(probe_error(jpeg_header(64, 0)), "not_an_image");
}

TEST(Probe, skips_fill_bytes_and_junk_between_jpeg_segments) {
  std::string jpeg = jpeg_header(40, 50, 1, 8, '\xC2');
  jpeg.insert(8, "\xFF\xFF\xFF\0junk"s);
  EXPECT_EQ(probe_error(jpeg), "ok");
}

TEST(Probe, skips_jpeg_markers_that_stand_alone) {
  std::string jpeg = jpeg_header(40, 50, 1, 8, '\xC2');
  jpeg.insert(2, "\xFF\x01\xFF\xD0"s);
  EXPECT_EQ(probe_error(jpeg), "ok");
}

TEST(Probe, applies_the_limits_in_order) {
  const ImageLimits limits{.min_size = 32, .max_aspect = 3, .max_pixels = 10000};
  EXPECT_EQ(probe_error(png_header(100, 100), limits), "ok");
  EXPECT_EQ(probe_error(png_header(101, 100), limits), "bomb");
  EXPECT_EQ(probe_error(png_header(32, 96), limits), "ok");
  EXPECT_EQ(probe_error(png_header(32, 97), limits), "bad_aspect");
  EXPECT_EQ(probe_error(png_header(31, 90), limits), "too_small");
  EXPECT_EQ(probe_error(png_header(31, 400), limits), "bomb");
  EXPECT_EQ(probe_error(jpeg_header(65535, 65535)), "bomb");
  EXPECT_EQ(probe_error(png_header(0x7FFFFFFF, 0x7FFFFFFF)), "bomb");
  EXPECT_EQ(probe_error(jpeg_header(1, 60000)), "ok");
}

}  // namespace
}  // namespace darkroom
