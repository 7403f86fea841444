#include "darkroom/image/transform.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "darkroom/core/check.h"
#include "decoders.h"
#include "resample_kernels.h"
#include "resized_by_rows.h"
#include "streamed_resize.h"

namespace darkroom {
namespace {

struct Size {
  int64_t width;
  int64_t height;
};

// int(R * long / short) in doubles, as the published preprocessing computes it.
int64_t scaled_long_side(int64_t resolution, int64_t longer, int64_t shorter) {
  return static_cast<int64_t>(static_cast<double>(resolution * longer) / static_cast<double>(shorter));
}

Size resized(int width, int height, int resolution) {
  if (width <= height) {
    return {resolution, scaled_long_side(resolution, height, width)};
  }
  return {scaled_long_side(resolution, width, height), resolution};
}

int crop_offset(int play, Crop crop, double draw) {
  switch (crop) {
    case Crop::kCenter:
      return play / 2;
    case Crop::kCenterRound:
      return play / 2 + (play % 4 == 3 ? 1 : 0);
    case Crop::kRandom:
      return std::min(static_cast<int>(draw * (play + 1.0)), play);
  }
  DARKROOM_CHECK(false, "a crop outside its enumeration:", static_cast<int>(crop));
}

std::array<float, 256> normalised_values() {
  std::array<float, 256> table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<size_t>(value)] = (static_cast<float>(value) / 255.0F - 0.5F) / 0.5F;
  }
  return table;
}

size_t num_values(int width, int height, int num_channels) {
  return static_cast<size_t>(width) * static_cast<size_t>(height) * static_cast<size_t>(num_channels);
}

// How a picture of the given size is resized and cropped.
struct Placement {
  int width;
  int height;
  Window window;
};

Placement place(int width, int height, const TransformOptions& options, const CropDraw& draw) {
  const int side = options.resolution;
  const Size size = resized(width, height, side);
  Placement result{static_cast<int>(size.width), static_cast<int>(size.height), {.width = side, .height = side}};
  result.window.left = crop_offset(result.width - side, options.crop, draw.x);
  result.window.top = crop_offset(result.height - side, options.crop, draw.y);
  return result;
}

// The resized and cropped picture, resized while it is decoded where that gives the same bits.
RowResult<Image> decode_and_crop(std::span<const std::byte> bytes, const ImageHeader& header, const TransformOptions& options,
                                 const ImageLimits& limits, const CropDraw& draw) {
  if (is_resized_by_rows(bytes, header, options)) {
    const Placement placement = place(header.width, header.height, options, draw);
    StreamedResize resize(header.width, header.height, placement.width, placement.height, options.filter, placement.window);
    if (auto error = decode_rows(bytes, header, resize)) {
      return *std::move(error);
    }
    return std::move(resize).finish();
  }
  const RowResult<Image> image = decode_image(bytes, limits, options.orientation);
  return image.is_ok() ? RowResult<Image>(resize_and_crop(*image, options, draw)) : image;
}

}  // namespace

bool is_resized_by_rows(std::span<const std::byte> bytes, const ImageHeader& header, const TransformOptions& options) {
  const bool is_upright = options.orientation == Orientation::kIgnore || read_orientation(bytes) == 1;
  const Size size = resized(header.width, header.height, options.resolution);
  return is_upright &&
         StreamedResize::is_possible(header.width, header.height, static_cast<int>(size.width), static_cast<int>(size.height));
}

Status TransformOptions::validate() const {
  if (resolution < 1 || resolution > kLargestSide) {
    return Status::invalid_argument(fmt::format("the resolution must lie in 1..{}, got:", kLargestSide), resolution);
  }
  return Status::ok();
}

Image resize_and_crop(const Image& image, const TransformOptions& options, const CropDraw& draw) {
  DARKROOM_CHECK(image.width > 0 && image.height > 0, "an empty picture cannot be cropped:", image.width, image.height);
  const Placement placement = place(image.width, image.height, options, draw);
  return resize_window(image, placement.width, placement.height, options.filter, placement.window);
}

RowResult<TransformedPixels> transform_pixels(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                              const CropDraw& draw) {
  const RowResult<ImageHeader> header = probe_image(bytes, limits);
  if (!header.is_ok()) {
    return header.error();
  }
  const Size size = resized(header->width, header->height, options.resolution);
  if (size.width > std::max<int64_t>(limits.max_pixels, options.resolution) / size.height) {
    return RowError{.code = RowErrorCode::kBomb,
                    .detail = fmt::format("{}x{} becomes {}x{}", header->width, header->height, size.width, size.height)};
  }
  RowResult<Image> square = decode_and_crop(bytes, *header, options, limits, draw);
  if (!square.is_ok()) {
    return square.error();
  }
  return TransformedPixels{header->width, header->height, std::move(square).value()};
}

RowResult<TransformedImage> transform_image(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                            const CropDraw& draw) {
  const RowResult<TransformedPixels> pixels = transform_pixels(bytes, options, limits, draw);
  if (!pixels.is_ok()) {
    return pixels.error();
  }
  TransformedImage result{pixels->width, pixels->height, std::vector<float>(pixels->square.pixels.size())};
  normalise_chw(pixels->square, result.chw);
  return result;
}

void normalise_chw(const Image& image, std::span<float> out) {
  static const std::array<float, 256> kTable = normalised_values();
  const size_t plane = num_values(image.width, image.height, 1);
  const auto channels = static_cast<size_t>(image.num_channels);
  DARKROOM_CHECK(out.size() == plane * channels, "the output does not fit the picture (want, got):", plane * channels, out.size());
  if (channels == 3) {
    normalise_rgb(image.pixels.data(), plane, out.data(), out.data() + plane, out.data() + 2 * plane);
    return;
  }
  for (size_t c = 0; c < channels; ++c) {
    float* values = out.data() + c * plane;
    const uint8_t* samples = image.pixels.data() + c;
    for (size_t i = 0; i < plane; ++i) {
      values[i] = kTable[samples[i * channels]];
    }
  }
}

Image denormalise_chw(std::span<const float> chw, int width, int height, int num_channels) {
  DARKROOM_CHECK(chw.size() == num_values(width, height, num_channels), "the values do not fit the picture (got):", chw.size());
  Image image = Image::filled(width, height, num_channels);
  const size_t plane = num_values(width, height, 1);
  const auto channels = static_cast<size_t>(num_channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < plane; ++i) {
      const float value = chw[c * plane + i] / 2.0F + 0.5F;
      const float clamped = value > 0.0F ? std::min(value, 1.0F) : 0.0F;  // NaN becomes 0.
      image.pixels[i * channels + c] = static_cast<uint8_t>(std::nearbyint(clamped * 255.0F));
    }
  }
  return image;
}

}  // namespace darkroom
