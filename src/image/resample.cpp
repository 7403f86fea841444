#include "darkroom/image/resample.h"

#include <algorithm>
#include <cstring>

#include "darkroom/core/check.h"
#include "filter_weights.h"
#include "multiply_by_fraction.h"
#include "resample_passes.h"

namespace darkroom {
namespace {

Image multiply_by_alpha(Image rgba) {
  for (size_t i = 0; i < rgba.pixels.size(); i += 4) {
    const int alpha = rgba.pixels[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      rgba.pixels[i + c] = multiply_by_fraction(rgba.pixels[i + c], alpha);
    }
  }
  return rgba;
}

Image divide_by_alpha(Image rgba) {
  for (size_t i = 0; i < rgba.pixels.size(); i += 4) {
    const uint32_t alpha = rgba.pixels[i + 3];
    if (alpha == 0 || alpha == 255) {
      continue;
    }
    for (size_t c = 0; c < 3; ++c) {
      rgba.pixels[i + c] = static_cast<uint8_t>(std::min(255U * rgba.pixels[i + c] / alpha, 255U));
    }
  }
  return rgba;
}

Image cut(const Image& image, const Window& window) {
  Image result = Image::filled(window.width, window.height, image.num_channels);
  for (int y = 0; y < window.height; ++y) {
    std::memcpy(result.row(y), image.row(window.top + y) + static_cast<size_t>(window.left) * static_cast<size_t>(image.num_channels),
                result.row_bytes());
  }
  return result;
}

// Bands of an image that is there as a whole.
GroupedRows weigh_columns(const Image& image, const QuadWeights& horizontal, const QuadWeights& vertical) {
  ColumnsPass pass(horizontal, image.num_channels, vertical.num_inputs);
  for (int row = 0; row < vertical.num_inputs; row += kBandRows) {
    const uint8_t* rows[kBandRows];
    for (int r = 0; r < kBandRows; ++r) {
      rows[r] = image.row(vertical.first_input + std::min(row + r, vertical.num_inputs - 1));
    }
    const int next = std::min(row + kBandRows, vertical.num_inputs);
    const int num_next = std::min(kBandRows, vertical.num_inputs - next);
    pass.add_band(rows, {image.row(vertical.first_input + next), static_cast<size_t>(num_next) * image.row_bytes()});
  }
  return std::move(pass).finish();
}

GroupedRows group_image(const Image& image, const QuadWeights& horizontal, const QuadWeights& vertical) {
  const auto channels = static_cast<size_t>(image.num_channels);
  GroupedRows result(vertical.num_inputs, horizontal.num_inputs, image.num_channels);
  for (int row = 0; row < vertical.num_inputs; row += kGroupRows) {
    const uint8_t* rows[kGroupRows];
    for (int r = 0; r < kGroupRows; ++r) {
      rows[r] = image.row(vertical.first_input + std::min(row + r, vertical.num_inputs - 1)) +
                static_cast<size_t>(horizontal.first_input) * channels;
    }
    group_rows(rows, result.num_samples(), result.group(row / kGroupRows));
  }
  return result;
}

// Columns first, rows second. Where one side keeps its size its pass only copies.
Image resample(const Image& image, int width, int height, Filter filter, const Window& window) {
  const bool keeps_width = image.width == width;
  const bool keeps_height = image.height == height;
  const QuadWeights horizontal =
      make_quad_weights(keeps_width ? make_identity_weights(window.left, window.width)
                                    : make_filter_weights(image.width, width, filter, window.left, window.width));
  const QuadWeights vertical =
      make_quad_weights(keeps_height ? make_identity_weights(window.top, window.height)
                                     : make_filter_weights(image.height, height, filter, window.top, window.height));
  if (keeps_width) {
    return weigh_rows(group_image(image, horizontal, vertical), vertical);
  }
  if (!keeps_height && rows_come_first(image.width, image.height, width, height)) {
    const Image rows_done = weigh_rows(group_image(image, horizontal, vertical), vertical);
    QuadWeights same_columns = horizontal;
    same_columns.first_input = 0;
    const QuadWeights same_rows = make_quad_weights(make_identity_weights(0, window.height));
    return weigh_rows(weigh_columns(rows_done, same_columns, same_rows), same_rows);
  }
  return weigh_rows(weigh_columns(image, horizontal, vertical), vertical);
}

void check_arguments(const Image& image, int width, int height, const Window& window) {
  DARKROOM_CHECK(image.width > 0 && image.height > 0, "an empty picture cannot be resized:", image.width, image.height);
  DARKROOM_CHECK(image.num_channels == 1 || image.num_channels == 3 || image.num_channels == 4,
                 "a picture of so many channels:", image.num_channels);
  DARKROOM_CHECK(image.pixels.size() == image.row_bytes() * static_cast<size_t>(image.height),
                 "pixels do not fit the size:", image.pixels.size());
  DARKROOM_CHECK(width > 0 && height > 0, "a resize to nothing (width, height):", width, height);
  DARKROOM_CHECK(window.left >= 0 && window.top >= 0 && window.width > 0 && window.height > 0 && window.width <= width - window.left &&
                     window.height <= height - window.top,
                 "a window outside the picture (left, top, width, height):", window.left, window.top, window.width, window.height);
}

}  // namespace

Image resize_window(const Image& image, int width, int height, Filter filter, const Window& window) {
  check_arguments(image, width, height, window);
  if (image.width == width && image.height == height) {
    return cut(image, window);
  }
  if (image.num_channels == 4) {
    return divide_by_alpha(resample(multiply_by_alpha(image), width, height, filter, window));
  }
  return resample(image, width, height, filter, window);
}

Image resize(const Image& image, int width, int height, Filter filter) {
  return resize_window(image, width, height, filter, {0, 0, width, height});
}

}  // namespace darkroom
