#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/decoding_memory.h"
#include "darkroom/image/probe.h"
#include "fuzz/fuzz_targets.h"

namespace darkroom {

void fuzz_probe(std::string_view bytes) {
  const ImageLimits limits{.min_size = 2, .max_aspect = 50, .max_pixels = 1'000'000};
  const auto view = std::as_bytes(std::span(bytes));
  const int orientation = read_orientation(view);
  DARKROOM_CHECK(orientation >= 1 && orientation <= 8, "an orientation:", orientation);
  const RowResult<ImageHeader> header = probe_image(view, limits);
  if (!header.is_ok()) {
    return;
  }
  const auto [short_side, long_side] = std::minmax({header->width, header->height});
  DARKROOM_CHECK(
      short_side >= limits.min_size && int64_t{short_side} * long_side <= limits.max_pixels && long_side <= limits.max_aspect * short_side,
      "a picture beyond its limits:", header->width, header->height);
  DARKROOM_CHECK(mime_type(header->format).starts_with("image/"), "a type:", mime_type(header->format));
  DARKROOM_CHECK(decoding_bytes(view, *header) <=
                     kMostDecodingBytesPerPixel * static_cast<size_t>(header->width) * static_cast<size_t>(header->height),
                 "a picture that takes more than any picture takes:", decoding_bytes(view, *header), header->width, header->height);
  const std::string longer = std::string(bytes) + "more";
  const RowResult<ImageHeader> longer_file = probe_image(std::as_bytes(std::span(longer)), limits);
  DARKROOM_CHECK(longer_file.is_ok() && longer_file->width == header->width && longer_file->height == header->height,
                 "what follows the header changed it");
}

void fuzz_picture(std::string_view bytes) {
  const ImageLimits limits{.min_size = 1, .max_pixels = 4096};
  const auto view = std::as_bytes(std::span(bytes));
  const RowResult<ImageHeader> checked = check_image(view, limits);
  const RowResult<Image> image = decode_image(view, limits, Orientation::kApply);
  DARKROOM_CHECK(!checked.is_ok() || image.is_ok(), "a picture that was checked is not decoded");
  if (image.is_ok()) {
    const size_t num_bytes = image->row_bytes() * static_cast<size_t>(image->height);
    DARKROOM_CHECK(num_bytes == image->pixels.size() && num_bytes <= 3u * static_cast<size_t>(limits.max_pixels),
                   "bytes of a picture:", num_bytes, image->pixels.size());
  }
}

}  // namespace darkroom
