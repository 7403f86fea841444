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

struct Part {
  int first = 0;
  int count = 0;
};

// The input samples that the weights use.
Part inputs_of(const FilterWeights& weights) {
  const int first = weights.spans.front().first;
  return {first, weights.spans.back().first + weights.spans.back().count - first};
}

// All columns of `weights` for the given rows only. `image` holds columns from `left` on of the picture that the weights
// were made for. Bands of 16 rows are transposed, so that 16 neighbours of one column, and the channels of one pixel, lie
// side by side and fill vectors.
Image resample_columns(const Image& image, const FilterWeights& weights, int left, Part rows) {
  const int num_columns = static_cast<int>(weights.spans.size());
  Image result = Image::filled(num_columns, rows.count, image.num_channels);
  const Part inputs = inputs_of(weights);
  const size_t in_bytes = static_cast<size_t>(inputs.count) * static_cast<size_t>(image.num_channels);
  const size_t skipped_bytes = static_cast<size_t>(inputs.first - left) * static_cast<size_t>(image.num_channels);
  const size_t pixel_bytes = static_cast<size_t>(image.num_channels) * kBandRows;
  std::vector<uint8_t> band(in_bytes * kBandRows);
  std::vector<uint8_t> resampled(result.row_bytes() * kBandRows);
  for (int top = 0; top < rows.count; top += kBandRows) {
    const int num_rows = std::min(kBandRows, rows.count - top);
    const uint8_t* in[kBandRows];
    uint8_t* out[kBandRows];
    for (int r = 0; r < kBandRows; ++r) {
      const int row = top + std::min(r, num_rows - 1);  // The last row fills up an incomplete band.
      in[r] = image.row(rows.first + row) + skipped_bytes;
      out[r] = result.row(row);
    }
    transpose_band(in, in_bytes, band.data());
    for (size_t x = 0; x < weights.spans.size(); ++x) {
      const FilterWeights::Span span = weights.spans[x];
      weigh_rows(band.data() + static_cast<size_t>(span.first - inputs.first) * pixel_bytes, pixel_bytes, weights.of(x), span.count,
                 pixel_bytes, resampled.data() + x * pixel_bytes);
    }
    restore_band(resampled.data(), result.row_bytes(), out, num_rows);
  }
  return result;
}

// All rows of `weights` for the given columns only. `image` holds rows from `first_row` on of the picture that the weights
// were made for.
Image resample_rows(const Image& image, const FilterWeights& weights, int first_row, Part columns) {
  Image result = Image::filled(columns.count, static_cast<int>(weights.spans.size()), image.num_channels);
  const size_t offset = static_cast<size_t>(columns.first) * static_cast<size_t>(image.num_channels);
  for (int y = 0; y < result.height; ++y) {
    const FilterWeights::Span span = weights.spans[static_cast<size_t>(y)];
    weigh_rows(image.row(span.first - first_row) + offset, image.row_bytes(), weights.of(static_cast<size_t>(y)), span.count,
               result.row_bytes(), result.row(y));
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

// Pillow 13 resamples the rows first where that takes away much more than the columns would; 12 and before never did. The
// 8-bit rounding between the passes makes the difference visible, by one level mostly.
bool rows_come_first(const Image& image, int width, int height) {
  return height < image.height && int64_t{image.height} - height > 2 * (int64_t{image.width} - width);
}

Image resample(const Image& image, int width, int height, Filter filter, const Window& window) {
  if (image.height == height) {
    return resample_columns(image, make_filter_weights(image.width, width, filter, window.left, window.width), 0,
                            {window.top, window.height});
  }
  const FilterWeights vertical = make_filter_weights(image.height, height, filter, window.top, window.height);
  if (image.width == width) {
    return resample_rows(image, vertical, 0, {window.left, window.width});
  }
  const FilterWeights horizontal = make_filter_weights(image.width, width, filter, window.left, window.width);
  if (rows_come_first(image, width, height)) {
    const Part columns = inputs_of(horizontal);
    return resample_columns(resample_rows(image, vertical, 0, columns), horizontal, columns.first, {0, window.height});
  }
  const Part rows = inputs_of(vertical);
  return resample_rows(resample_columns(image, horizontal, 0, rows), vertical, rows.first, {0, window.width});
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
