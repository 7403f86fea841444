#include <nanobind/stl/string.h>

#include <span>
#include <string>
#include <utility>

#include "bindings.h"
#include "darkroom/core/random.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/transform.h"
#include "owned_array.h"
#include "transform_names.h"

namespace nb = nanobind;

namespace darkroom {

TransformOptions transform_of_names(int resolution, const std::string& resize, const std::string& crop, const std::string& orientation) {
  TransformOptions options{.resolution = resolution,
                           .filter = value_or_raise(parse_filter(resize)),
                           .crop = value_or_raise(parse_crop(crop)),
                           .orientation = value_or_raise(parse_orientation(orientation))};
  raise_if_failed(options.validate());
  return options;
}

namespace {

std::span<const std::byte> view_of(const nb::bytes& data) { return {static_cast<const std::byte*>(data.data()), data.size()}; }

template <typename T>
T picture_or_raise(RowResult<T> result) {
  if (!result.is_ok()) {
    const RowError& error = result.error();
    raise_failure(Status::corrupt_data("the picture cannot be used (code, reason):", error.name(), error.detail), error.name());
  }
  return std::move(result).value();
}

CropDraw draw_of(uint64_t seed, const std::string& key) {
  const CounterRandom random(seed, Purpose::kCrop, 0, key);
  return {.x = random.uniform(0), .y = random.uniform(1)};
}

using Floats = nb::ndarray<nb::numpy, float>;
using Bytes = nb::ndarray<nb::numpy, uint8_t>;

Floats transform_to_floats(const nb::bytes& picture, int resolution, const std::string& resize, const std::string& crop,
                           const std::string& orientation, uint64_t seed, const std::string& key) {
  const TransformOptions options = transform_of_names(resolution, resize, crop, orientation);
  TransformedImage image =
      picture_or_raise(without_gil([&] { return transform_image(view_of(picture), options, kAnySize, draw_of(seed, key)); }));
  const auto side = static_cast<size_t>(resolution);
  return owned_array(std::move(image.chw), {size_t{3}, side, side});
}

Bytes transform_to_bytes(const nb::bytes& picture, int resolution, const std::string& resize, const std::string& crop,
                         const std::string& orientation, uint64_t seed, const std::string& key) {
  const TransformOptions options = transform_of_names(resolution, resize, crop, orientation);
  TransformedPixels image =
      picture_or_raise(without_gil([&] { return transform_pixels(view_of(picture), options, kAnySize, draw_of(seed, key)); }));
  const auto side = static_cast<size_t>(resolution);
  return owned_array(std::move(image.square.pixels), {side, side, size_t{3}});
}

Bytes decode_picture(const nb::bytes& picture) {
  Image image = picture_or_raise(without_gil([&] { return decode_image(view_of(picture), kAnySize); }));
  return owned_array(std::move(image.pixels), {static_cast<size_t>(image.height), static_cast<size_t>(image.width), size_t{3}});
}

}  // namespace

void bind_transform(nb::module_& module) {
  const auto define = [&](const char* name, auto function) {
    module.def(name, function, nb::arg("picture"), nb::arg("resolution"), nb::arg("resize"), nb::arg("crop"), nb::arg("orientation"),
               nb::arg("seed"), nb::arg("key"));
  };
  define("transform_to_floats", &transform_to_floats);
  define("transform_to_bytes", &transform_to_bytes);
  module.def("decode_picture", &decode_picture, nb::arg("picture"));
}

}  // namespace darkroom
