#include "darkroom/image/resample.h"

#include <algorithm>
#include <cstring>

#include "darkroom/core/check.h"
#include "filter_weights.h"
#include "resample_kernels.h"

namespace darkroom {
namespace {

// a * b / 255, rounded, as Pillow's MULDIV255 computes it.
uint8_t multiply_by_fraction(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

Image multiply_by_alpha(Image rgba) {
  for (size_t i = 0; i < rgba.pixels.size(); i += 4) {
    const uint32_t alpha = rgba.pixels[i + 3];
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

struct Rows {
  int first = 0;
  int count = 0;
};

// Columns left .. left + columns - 1 of the picture resampled to `width`, for the given rows only. Bands of 16 rows are
// transposed, so that 16 neighbours of one column, and the channels of one pixel, lie side by side: one vector.
Image resample_columns(const Image& image, int width, Filter filter, int left, int columns, Rows rows) {
  const FilterWeights weights = make_filter_weights(image.width, width, filter, left, columns);
  Image result = Image::filled(columns, rows.count, image.num_channels);
  const size_t first_column = static_cast<size_t>(weights.spans.front().first);
  const size_t end_column = static_cast<size_t>(weights.spans.back().first + weights.spans.back().count);
  const auto channels = static_cast<size_t>(image.num_channels);
  const size_t pixel_bytes = channels * kBandRows;
  std::vector<uint8_t> band((end_column - first_column) * pixel_bytes);
  std::vector<uint8_t> resampled(static_cast<size_t>(columns) * pixel_bytes);
  for (int top = 0; top < rows.count; top += kBandRows) {
    const int num_rows = std::min(kBandRows, rows.count - top);
    const uint8_t* in[kBandRows];
    uint8_t* out[kBandRows];
    for (int r = 0; r < kBandRows; ++r) {
      const int row = top + std::min(r, num_rows - 1);  // The last row fills up an incomplete band.
      in[r] = image.row(rows.first + row) + first_column * channels;
      out[r] = result.row(row);
    }
    transpose_band(in, (end_column - first_column) * channels, band.data());
    for (int x = 0; x < columns; ++x) {
      const FilterWeights::Span span = weights.spans[static_cast<size_t>(x)];
      weigh_rows(band.data() + (static_cast<size_t>(span.first) - first_column) * pixel_bytes, pixel_bytes,
                 weights.of(static_cast<size_t>(x)), span.count, pixel_bytes, resampled.data() + static_cast<size_t>(x) * pixel_bytes);
    }
    restore_band(resampled.data(), result.row_bytes(), out, num_rows);
  }
  return result;
}

// `image` holds rows from `first_row` on of the picture that `weights` were made for.
Image resample_rows(const Image& image, const FilterWeights& weights, int first_row) {
  Image result = Image::filled(image.width, static_cast<int>(weights.spans.size()), image.num_channels);
  for (int y = 0; y < result.height; ++y) {
    const FilterWeights::Span span = weights.spans[static_cast<size_t>(y)];
    weigh_rows(image.row(span.first - first_row), image.row_bytes(), weights.of(static_cast<size_t>(y)), span.count, image.row_bytes(),
               result.row(y));
  }
  return result;
}

Image cut(const Image& image, const Window& window) {
  Image result = Image::filled(window.width, window.height, image.num_channels);
  for (int y = 0; y < window.height; ++y) {
    std::memcpy(result.row(y), image.row(window.top + y) + static_cast<size_t>(window.left) * static_cast<size_t>(image.num_channels),
                result.row_bytes());
  }
  return result;
}

Image resample(const Image& image, int width, int height, Filter filter, const Window& window) {
  if (image.height == height) {
    return resample_columns(image, width, filter, window.left, window.width, {window.top, window.height});
  }
  const FilterWeights vertical = make_filter_weights(image.height, height, filter, window.top, window.height);
  const int first_row = vertical.spans.front().first;
  const int num_rows = vertical.spans.back().first + vertical.spans.back().count - first_row;
  if (image.width == width) {
    return resample_rows(cut(image, {window.left, first_row, window.width, num_rows}), vertical, first_row);
  }
  return resample_rows(resample_columns(image, width, filter, window.left, window.width, {first_row, num_rows}), vertical, first_row);
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
