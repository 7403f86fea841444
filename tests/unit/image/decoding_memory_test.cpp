#include "darkroom/image/decoding_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "golden_files.h"
#include "webp_on_canvas.h"

namespace darkroom {
namespace {

size_t bytes_per_pixel(const std::string& picture) {
  const RowResult<ImageHeader> header = probe_image(as_bytes(picture), kAnySize);
  if (!header.is_ok()) {
    ADD_FAILURE() << header.error().detail;
    return 0;
  }
  const auto num_pixels = static_cast<size_t>(header->width) * static_cast<size_t>(header->height);
  const size_t bytes = decoding_bytes(as_bytes(picture), *header);
  EXPECT_EQ(bytes % num_pixels, 0u);
  return bytes / num_pixels;
}

TEST(DecodingMemory, is_none_of_a_picture_that_comes_row_by_row) {
  for (const char* name : {"jpeg_420.jpg", "jpeg_grey.jpg", "jpeg_cmyk.jpg", "jpeg_restarts.jpg", "png_rgb_8.png", "png_palette_2.png"}) {
    EXPECT_EQ(bytes_per_pixel(golden_bytes(std::string("files/") + name)), 0u) << name;
  }
}

TEST(DecodingMemory, is_what_a_decoder_holds_of_a_whole_picture) {
  const std::map<std::string, size_t> want = {{"jpeg_420_progressive.jpg", 6}, {"png_grey_16.png", 5}, {"png_rgb_interlaced.png", 3},
                                              {"png_rgba_16.png", 3},          {"webp_lossy.webp", 9}, {"webp_animated.webp", 9}};
  for (const auto& [name, bytes] : want) {
    EXPECT_EQ(bytes_per_pixel(golden_bytes("files/" + name)), bytes) << name;
  }
  EXPECT_EQ(bytes_per_pixel(webp_on_canvas(10'000, 10'000, 0, 0, 1, 1, {})), 9u);
}

TEST(DecodingMemory, is_that_of_all_components_where_a_baseline_jpeg_has_several_scans) {
  std::string colours = golden_bytes("files/jpeg_444.jpg");
  colours.at(colours.find("\xFF\xDA") + 4) = 1;  // The first scan has one component of three.
  EXPECT_EQ(bytes_per_pixel(colours), 6u);
  std::string inks = golden_bytes("files/jpeg_cmyk.jpg");
  inks.at(inks.find("\xFF\xDA") + 4) = 1;
  EXPECT_EQ(bytes_per_pixel(inks), 8u);
}

TEST(DecodingMemory, is_none_of_a_jpeg_that_is_cut_before_its_scan) {
  const std::string jpeg = golden_bytes("files/jpeg_420_progressive.jpg");
  const size_t scan = jpeg.find("\xFF\xDA");
  for (size_t size = jpeg.find("\xFF\xC2") + 20; size <= scan + 4; ++size) {
    EXPECT_EQ(bytes_per_pixel(jpeg.substr(0, size)), 0u) << size;
  }
  EXPECT_EQ(bytes_per_pixel(jpeg.substr(0, scan + 5)), 6u);
}

TEST(DecodingMemory, follows_the_first_header_of_a_jpeg_as_the_probe_does) {
  std::string jpeg = golden_bytes("files/jpeg_420.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  std::string second = jpeg.substr(frame, 19);
  second.at(9) = '\xFF';  // Of 255 components, which no decoder comes to.
  jpeg.insert(frame + 19, second);
  EXPECT_EQ(bytes_per_pixel(jpeg), 0u);
}

size_t bytes_transformed(const std::string& picture, const TransformOptions& options) {
  return transforming_bytes(as_bytes(picture), probe_image(as_bytes(picture), kAnySize).value(), options);
}

TEST(DecodingMemory, of_a_transform_is_also_the_picture_where_it_is_kept_whole) {
  const std::string turned = golden_bytes("files/orientation_6.jpg");
  const ImageHeader header = probe_image(as_bytes(turned), kAnySize).value();
  const auto num_pixels = static_cast<size_t>(header.width) * static_cast<size_t>(header.height);
  EXPECT_EQ(bytes_transformed(turned, {.resolution = 8}), 0u);
  EXPECT_EQ(bytes_transformed(turned, {.resolution = 8, .orientation = Orientation::kApply}), 6 * num_pixels);
  EXPECT_EQ(resizing_bytes(as_bytes(turned), header), 3 * num_pixels);
  EXPECT_EQ(bytes_transformed(turned, {.resolution = std::min(header.width, header.height)}), 3 * num_pixels);
  const std::string high = webp_on_canvas(100, 300, 0, 0, 100, 300, {1, 2, 3, 255});
  EXPECT_EQ(bytes_transformed(high, {.resolution = 50}), size_t{100} * 300 * (9 + 3));
}

}  // namespace
}  // namespace darkroom
