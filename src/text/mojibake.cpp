#include "mojibake.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "utf8_lookalike.h"

namespace darkroom {
namespace {

using State = uint8_t;

struct ClassRange {
  char32_t first;
  char32_t last;
  uint8_t number;
};

#include "mojibake_table.inc"

uint8_t find_class(char32_t c) {
  const auto after = std::ranges::upper_bound(kClassRanges, c, {}, &ClassRange::first);
  return after != std::begin(kClassRanges) && c <= std::prev(after)->last ? std::prev(after)->number : 0;
}

uint8_t class_of(char32_t c) {
  constexpr char32_t kTabled = 0x2700;  // Beyond it lie letters and four characters of the expression.
  static const std::vector<uint8_t> kTable = [] {
    std::vector<uint8_t> table(kTabled);
    for (char32_t code_point = 0; code_point < kTabled; ++code_point) {
      table[code_point] = find_class(code_point);
    }
    return table;
  }();
  return c < kTabled ? kTable[c] : find_class(c);
}

// ftfy's is_bad.
bool is_bad(std::u32string_view line) {
  State state = 0;
  for (const char32_t c : line) {
    state = kNextStates[state][class_of(c)];
    if (state == kFound) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool looks_like_mojibake(std::u32string_view line) { return holds_utf8_lookalike(line) && is_bad(line); }

}  // namespace darkroom
