#include <array>
#include <string>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/image/transform.h"

namespace darkroom {
namespace {

template <typename Value, size_t kCount>
using Names = std::array<std::pair<std::string_view, Value>, kCount>;

constexpr Names<Filter, 5> kFilters = {{{"bilinear", Filter::kBilinear},
                                        {"bicubic", Filter::kBicubic},
                                        {"lanczos", Filter::kLanczos},
                                        {"hamming", Filter::kHamming},
                                        {"box", Filter::kBox}}};
constexpr Names<Crop, 3> kCrops = {{{"center", Crop::kCenter}, {"center_round", Crop::kCenterRound}, {"random", Crop::kRandom}}};
constexpr Names<Orientation, 2> kOrientations = {{{"ignore", Orientation::kIgnore}, {"apply", Orientation::kApply}}};

template <typename Value, size_t kCount>
Result<Value> find_by_name(std::string_view what, const Names<Value, kCount>& names, std::string_view wanted) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == wanted) {
      return value;
    }
    known += known.empty() ? "" : "|";
    known += name;
  }
  return Status::invalid_argument(what, "must be", known + ", got:", wanted);
}

template <typename Value, size_t kCount>
std::string_view name_of(const Names<Value, kCount>& names, Value wanted) {
  for (const auto& [name, value] : names) {
    if (value == wanted) {
      return name;
    }
  }
  DARKROOM_CHECK(false, "a value outside its enumeration:", static_cast<int>(wanted));
}

}  // namespace

Result<Filter> parse_filter(std::string_view name) { return find_by_name("the resize filter", kFilters, name); }
Result<Crop> parse_crop(std::string_view name) { return find_by_name("the crop", kCrops, name); }
Result<Orientation> parse_orientation(std::string_view name) { return find_by_name("the orientation", kOrientations, name); }

std::string_view filter_name(Filter filter) { return name_of(kFilters, filter); }
std::string_view crop_name(Crop crop) { return name_of(kCrops, crop); }
std::string_view orientation_name(Orientation orientation) { return name_of(kOrientations, orientation); }

}  // namespace darkroom
