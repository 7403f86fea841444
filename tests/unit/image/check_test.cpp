#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/transform.h"
#include "golden_files.h"

namespace darkroom {
namespace {

using namespace std::string_literals;

std::string check_outcome(const std::string& bytes, const ImageLimits& limits = kAnySize) {
  const RowResult<ImageHeader> header = check_image(as_bytes(bytes), limits);
  return header.is_ok() ? "ok" : header.error().name();
}

std::string decode_outcome(const std::string& bytes, const ImageLimits& limits = kAnySize) {
  const RowResult<Image> image = decode_image(as_bytes(bytes), limits);
  return image.is_ok() ? "ok" : image.error().name();
}

bool is_jpeg(const std::string& name) { return name.ends_with("jpg"); }

// The first byte of a JPEG's (first) entropy-coded data.
size_t first_coded_byte(const std::string& jpeg) {
  const size_t scan = jpeg.rfind("\xFF\xDA");
  return scan + 2 + static_cast<size_t>(static_cast<uint8_t>(jpeg[scan + 2])) * 256 + static_cast<uint8_t>(jpeg[scan + 3]);
}

TEST(CheckImage, takes_every_golden_file_and_says_what_its_header_says) {
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const RowResult<ImageHeader> header = check_image(as_bytes(golden_bytes("files/" + name)), kAnySize);
    ASSERT_TRUE(header.is_ok()) << name << ": " << header.error().detail;
    EXPECT_EQ(header->width, golden.at("width")) << name;
    EXPECT_EQ(header->height, golden.at("height")) << name;
    EXPECT_EQ(mime_type(header->format), is_jpeg(name) ? "image/jpeg" : name.ends_with("png") ? "image/png" : "image/webp");
  }
}

TEST(CheckImage, refuses_what_decode_image_refuses_by_the_same_name) {
  std::set<std::string> names;
  for (const auto& golden : golden_files()) {
    const std::string whole = golden_bytes("files/" + golden.at("name").get<std::string>());
    for (const size_t size : {size_t{0}, whole.size() / 3, whole.size() / 2, whole.size() - 13}) {
      const std::string want = decode_outcome(whole.substr(0, size));
      EXPECT_EQ(check_outcome(whole.substr(0, size)), want) << golden.at("name") << " " << size;
      names.insert(want);
    }
    EXPECT_EQ(check_outcome(whole, {.min_size = 10'000}), "too_small");
  }
  EXPECT_EQ(names, (std::set{"not_an_image"s, "truncated"s}));
}

// Pillow shows grey where blocks are missing; that is what a server's cut file looks like when somebody closed it properly.
TEST(CheckImage, calls_a_jpeg_truncated_whose_blocks_end_before_it) {
  for (const std::string name : {"jpeg_444.jpg", "jpeg_420.jpg", "jpeg_grey.jpg"}) {
    const std::string whole = golden_bytes("files/" + name);
    const size_t first = first_coded_byte(whole);
    const std::string closed = whole.substr(0, first + (whole.size() - first) / 2) + "\xFF\xD9";
    EXPECT_EQ(decode_outcome(closed), "ok") << name;
    EXPECT_EQ(check_outcome(closed), "truncated") << name;
  }
}

TEST(CheckImage, finds_damaged_codes_that_decode_image_tolerates) {
  const CounterRandom random(1, Purpose::kSelect, 0, "codes");
  uint64_t draw = 0;
  std::set<std::string> found;
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const std::string whole = golden_bytes("files/" + name);
    for (int i = 0; is_jpeg(name) && i < 40; ++i, draw += 2) {
      std::string damaged = whole;
      const size_t first = first_coded_byte(whole);
      damaged[first + random.below(draw, static_cast<uint32_t>(whole.size() - first))] = static_cast<char>(random.bits(draw + 1));
      const std::string decoded = decode_outcome(damaged);
      const std::string verdict = check_outcome(damaged);
      found.insert(decoded == "ok" ? verdict : "refused by both");
      EXPECT_TRUE(decoded == "ok" || verdict != "ok") << name << " " << decoded;
    }
  }
  EXPECT_EQ(found, (std::set{"decode_failed"s, "ok"s, "refused by both"s, "truncated"s}));
}

TEST(CheckImage, does_not_mind_stray_bytes_after_the_last_block) {
  const std::string whole = golden_bytes("files/jpeg_444.jpg");
  const size_t end = whole.rfind("\xFF\xD9");
  const std::string stray = whole.substr(0, end) + "stray bytes" + whole.substr(end);
  EXPECT_EQ(decode_outcome(stray), "ok");
  EXPECT_EQ(check_outcome(stray), "ok");
}

TEST(TransformPixels, are_what_transform_image_normalises) {
  for (const auto& golden : golden_files()) {
    const std::string bytes = golden_bytes("files/" + golden.at("name").get<std::string>());
    const TransformedPixels pixels = transform_pixels(as_bytes(bytes), {.resolution = 33}, kAnySize).value();
    std::vector<float> want(pixels.square.pixels.size());
    normalise_chw(pixels.square, want);
    EXPECT_EQ(transform_image(as_bytes(bytes), {.resolution = 33}, kAnySize)->chw, want) << golden.at("name");
    EXPECT_EQ(pixels.width, golden.at("width"));
    EXPECT_EQ(pixels.square.width, 33);
  }
}

}  // namespace
}  // namespace darkroom
