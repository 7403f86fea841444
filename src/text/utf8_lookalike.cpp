#include "utf8_lookalike.h"

#include <algorithm>
#include <cstdint>

namespace darkroom {
namespace {

using Encodings = uint16_t;  // A bit each.
constexpr Encodings kEveryEncoding = 0xFFFF;

// In which encodings a character stands for which byte of UTF-8.
struct Lookalike {
  char32_t code_point;
  Encodings first_of_2;
  Encodings first_of_3;
  Encodings first_of_4;
  Encodings continuation;
};
constexpr Lookalike kLookalikes[] = {
#include "utf8_lookalike_table.inc"
};

Lookalike find(char32_t c) {
  const auto found = std::ranges::lower_bound(kLookalikes, c, {}, &Lookalike::code_point);
  Lookalike result = found != std::end(kLookalikes) && found->code_point == c ? *found : Lookalike{c, 0, 0, 0, 0};
  const bool is_lost_or_control = c == U' ' || c == U'?' || c == 0x1A || c == 0xFFFD || (c >= 0x80 && c < 0xA0);
  if (is_lost_or_control) {
    result.continuation = kEveryEncoding;
  }
  return result;
}

}  // namespace

bool holds_utf8_lookalike(std::u32string_view line) {
  // Encodings in which the last 1, 2, 3 characters begin a longer one of which 1, 2, 3 more characters are missing.
  Encodings missing_1 = 0;
  Encodings missing_2 = 0;
  Encodings missing_3 = 0;
  for (const char32_t c : line) {
    const Lookalike here = find(c);
    if ((missing_1 & here.continuation) != 0 || c == 0x1A) {
      return true;
    }
    missing_1 = here.first_of_2 | (missing_2 & here.continuation);
    missing_2 = here.first_of_3 | (missing_3 & here.continuation);
    missing_3 = here.first_of_4;
  }
  return false;
}

}  // namespace darkroom
