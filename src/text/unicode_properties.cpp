#include "unicode_properties.h"

#include <algorithm>
#include <vector>

namespace darkroom {
namespace {

struct PropertyRange {
  char32_t first;
  char32_t last;
  uint16_t properties;
};

#include "unicode_properties.inc"

uint16_t search_properties(char32_t code_point) {
  const auto after = std::ranges::upper_bound(kPropertyRanges, code_point, {}, &PropertyRange::first);
  return std::prev(after)->properties;
}

// All that text is commonly written in; what lies beyond is searched.
constexpr char32_t kTabled = 0x32000;

std::vector<uint16_t> make_table() {
  std::vector<uint16_t> table(kTabled);
  for (const PropertyRange& range : kPropertyRanges) {
    for (char32_t c = range.first; c <= range.last && c < kTabled; ++c) {
      table[c] = range.properties;
    }
  }
  return table;
}

}  // namespace

uint16_t character_properties(char32_t code_point) {
  static const std::vector<uint16_t> table = make_table();
  return code_point < kTabled ? table[code_point] : search_properties(code_point);
}

}  // namespace darkroom
