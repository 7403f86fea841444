#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "darkroom/core/random.h"
#include "darkroom/image/transform.h"
#include "golden_files.h"
#include "support/rounds.h"
#include "vector_unit.h"

namespace darkroom {
namespace {

// Smooth shapes under noise, so that neighbouring rows differ and chroma upsampling has something to smooth.
Image painted(uint64_t seed, int width, int height, int num_channels) {
  const CounterRandom random(seed, Purpose::kSelect, 0, "jpeg");
  Image image = Image::filled(width, height, num_channels);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * num_channels; ++x) {
      const auto noise = static_cast<int>(random.bits(static_cast<uint64_t>(y * width * num_channels + x)) >> 26);
      const int shape = (x / num_channels * (3 + x % num_channels) + y * 5) % 192;
      image.row(y)[x] = static_cast<uint8_t>(shape + noise);
    }
  }
  return image;
}

struct JpegCoding {
  int horizontal = 1;  // Luma samples for one of chroma.
  int vertical = 1;
  bool is_progressive = false;
  bool is_grey = false;
  bool is_cmyk = false;
  bool is_arithmetic = false;
  unsigned restart_interval = 0;
  int quality = 85;
};

std::string encode_jpeg(const Image& image, const JpegCoding& coding) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);  // Its error_exit ends the test program.
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = image.num_channels;
  jpeg.in_color_space = coding.is_cmyk ? JCS_CMYK : coding.is_grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, coding.quality, TRUE);
  if (!coding.is_grey && !coding.is_cmyk) {
    jpeg.comp_info[0].h_samp_factor = coding.horizontal;
    jpeg.comp_info[0].v_samp_factor = coding.vertical;
  }
  jpeg.restart_interval = coding.restart_interval;
  jpeg.arith_code = coding.is_arithmetic ? TRUE : FALSE;
  if (coding.is_progressive) {
    jpeg_simple_progression(&jpeg);
  }
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(image.row(static_cast<int>(jpeg.next_scanline)));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string result(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return result;
}

class Draws {
 public:
  explicit Draws(const char* key) : random_(7, Purpose::kSelect, 0, key) {}
  int below(int bound) { return static_cast<int>(random_.below(2 * next_++, static_cast<uint32_t>(bound))); }
  double uniform() { return random_.uniform(1'000'000 + next_++); }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

JpegCoding draw_coding(Draws& draws) {
  JpegCoding coding;
  const int kind = draws.below(10);
  coding.is_grey = kind == 0;
  coding.is_cmyk = kind == 1;
  coding.horizontal = kind == 2 ? 4 : 1 + draws.below(2);
  coding.vertical = kind == 2 ? 1 : 1 + draws.below(2);
  coding.is_progressive = draws.below(3) == 0;
  coding.is_arithmetic = draws.below(8) == 0;
  coding.restart_interval = draws.below(3) == 0 ? static_cast<unsigned>(1 + draws.below(9)) : 0;
  coding.quality = 20 + draws.below(80);
  return coding;
}

std::string draw_jpeg(Draws& draws, uint64_t seed) {
  const JpegCoding coding = draw_coding(draws);
  // Long pictures: most rows lie outside the crop.
  const int width = 1 + draws.below(70);
  const int height = width + draws.below(200);
  return encode_jpeg(painted(seed, width, height, coding.is_grey ? 1 : coding.is_cmyk ? 4 : 3), coding);
}

struct Outcome {
  std::string error = "ok";
  std::vector<float> chw;

  bool operator==(const Outcome&) const = default;
};

// Decoded as a whole, then resized and cropped.
Outcome by_the_whole(const std::string& bytes, const TransformOptions& options, const CropDraw& draw) {
  const RowResult<Image> image = decode_image(as_bytes(bytes), kAnySize);
  if (!image.is_ok()) {
    return {std::string(image.error().name()) + image.error().detail, {}};
  }
  const Image square = resize_and_crop(*image, options, draw);
  Outcome outcome{"ok", std::vector<float>(square.pixels.size())};
  normalise_chw(square, outcome.chw);
  return outcome;
}

Outcome by_rows(const std::string& bytes, const TransformOptions& options, const CropDraw& draw) {
  RowResult<TransformedImage> image = transform_image(as_bytes(bytes), options, kAnySize, draw);
  return image.is_ok() ? Outcome{"ok", std::move(image->chw)} : Outcome{std::string(image.error().name()) + image.error().detail, {}};
}

TransformOptions draw_options(Draws& draws) {
  return {.resolution = 1 + draws.below(90), .filter = static_cast<Filter>(draws.below(5)), .crop = static_cast<Crop>(draws.below(3))};
}

// Rows that the crop does not need are skipped, not decoded; the upsampling of chroma looks at the rows around each row.
TEST(DecodeRows, skipping_rows_of_a_jpeg_changes_no_bit) {
  Draws draws("skip");
  for (uint64_t i = 0; i < static_cast<uint64_t>(rounds(2000)); ++i) {
    const std::string jpeg = draw_jpeg(draws, i);
    const TransformOptions options = draw_options(draws);
    const CropDraw draw{draws.uniform(), draws.uniform()};
    const Outcome want = by_the_whole(jpeg, options, draw);
    ASSERT_EQ(want.error, "ok") << i;
    ASSERT_EQ(by_rows(jpeg, options, draw), want) << "case " << i;
  }
}

TEST(DecodeRows, skipping_rows_of_a_cut_or_damaged_jpeg_changes_neither_bits_nor_error) {
  Draws draws("damage");
  int num_refused = 0;
  int num_damaged_but_read = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string jpeg = draw_jpeg(draws, i);
    if (i % 2 == 0) {
      jpeg.resize(static_cast<size_t>(draws.below(static_cast<int>(jpeg.size()))));
    } else {
      for (int change = 0; change < 3; ++change) {
        const int place = draws.below(static_cast<int>(jpeg.size()));
        jpeg[static_cast<size_t>(place)] = static_cast<char>(draws.below(256));
      }
    }
    const TransformOptions options = draw_options(draws);
    const CropDraw draw{draws.uniform(), draws.uniform()};
    const RowResult<ImageHeader> header = probe_image(as_bytes(jpeg), {.min_size = 1, .max_pixels = 1'000'000});
    if (!header.is_ok()) {
      continue;  // Damage may announce a giant.
    }
    const Outcome want = by_the_whole(jpeg, options, draw);
    ASSERT_EQ(by_rows(jpeg, options, draw), want) << "case " << i;
    num_refused += want.error == "ok" ? 0 : 1;
    num_damaged_but_read += want.error == "ok" && i % 2 == 1 ? 1 : 0;
  }
  EXPECT_GT(num_refused, 500);
  EXPECT_GT(num_damaged_but_read, 300);
}

TEST(DecodeRows, rows_of_a_damaged_png_or_webp_give_the_bits_and_the_error_of_the_whole) {
  Draws draws("others");
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    if (name.ends_with("jpg")) {
      continue;
    }
    const std::string whole = golden_bytes("files/" + name);
    for (int i = 0; i < 40; ++i) {
      std::string bytes = whole;
      if (i % 4 == 1) {
        bytes.resize(static_cast<size_t>(draws.below(static_cast<int>(bytes.size()))));
      } else if (i % 4 > 1) {
        bytes[static_cast<size_t>(draws.below(static_cast<int>(bytes.size())))] = static_cast<char>(draws.below(256));
      }
      if (!probe_image(as_bytes(bytes), {.min_size = 1, .max_pixels = 1'000'000}).is_ok()) {
        continue;
      }
      const TransformOptions options = draw_options(draws);
      const CropDraw draw{draws.uniform(), draws.uniform()};
      ASSERT_EQ(by_rows(bytes, options, draw), by_the_whole(bytes, options, draw)) << name << " case " << i;
    }
  }
}

TEST(DecodeRows, normalises_all_256_values_alike_on_every_vector_unit) {
  constexpr int kNumPixels = 256 + 7;  // Whole vectors and a rest.
  Image image = Image::filled(kNumPixels, 1, 3);
  for (int i = 0; i < kNumPixels * 3; ++i) {
    image.pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(i / 3 + i % 3 * 85);
  }
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    const HeldVectorUnit held(target);
    std::vector<float> chw(image.pixels.size());
    normalise_chw(image, chw);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const float want = (static_cast<float>(image.pixels[i]) / 255.0F - 0.5F) / 0.5F;
      ASSERT_EQ(chw[i % 3 * kNumPixels + i / 3], want) << static_cast<int>(image.pixels[i]);
    }
  }
}

}  // namespace
}  // namespace darkroom
