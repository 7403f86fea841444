#include <array>
#include <string>
#include <utility>

#include "darkroom/image/transform.h"

namespace darkroom {
namespace {

template <typename Value, size_t kCount>
Result<Value> find_by_name(std::string_view what, const std::array<std::pair<std::string_view, Value>, kCount>& values,
                           std::string_view name) {
  std::string known;
  for (const auto& [value_name, value] : values) {
    if (value_name == name) {
      return value;
    }
    known += known.empty() ? "" : "|";
    known += value_name;
  }
  return Status::invalid_argument(what, "must be", known + ", got:", name);
}

}  // namespace

Result<Filter> parse_filter(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Filter>, 5> kFilters = {{{"bilinear", Filter::kBilinear},
                                                                                   {"bicubic", Filter::kBicubic},
                                                                                   {"lanczos", Filter::kLanczos},
                                                                                   {"hamming", Filter::kHamming},
                                                                                   {"box", Filter::kBox}}};
  return find_by_name("the resize filter", kFilters, name);
}

Result<Crop> parse_crop(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Crop>, 2> kCrops = {{{"center", Crop::kCenter}, {"random", Crop::kRandom}}};
  return find_by_name("the crop", kCrops, name);
}

Result<Orientation> parse_orientation(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Orientation>, 2> kOrientations = {
      {{"ignore", Orientation::kIgnore}, {"apply", Orientation::kApply}}};
  return find_by_name("the orientation", kOrientations, name);
}

}  // namespace darkroom
