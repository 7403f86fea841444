#include "letter_case.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "unicode_properties.h"

namespace darkroom {
namespace {

struct LowerRange {
  char32_t first;
  char32_t last;
  uint8_t step;  // Every step-th character of the range has a lower case.
  int32_t distance;
};

#include "letter_case.inc"

constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kSmallSigma = 0x3C3;
constexpr char32_t kFinalSigma = 0x3C2;
constexpr char32_t kDottedI = 0x130;
constexpr std::u32string_view kLowerDottedI = U"i\u0307";

// The lower case by `ranges`, or the character itself.
char32_t find_lower(std::span<const LowerRange> ranges, char32_t code_point) {
  const auto after = std::ranges::upper_bound(ranges, code_point, {}, &LowerRange::first);
  if (after == ranges.begin()) {
    return code_point;
  }
  const LowerRange& range = *std::prev(after);
  const bool is_in = code_point <= range.last && (code_point - range.first) % range.step == 0;
  return is_in ? static_cast<char32_t>(static_cast<int32_t>(code_point) + range.distance) : code_point;
}

bool has(char32_t code_point, uint16_t property) { return (character_properties(code_point) & property) != 0; }

// Whether the first character that case does not ignore is a cased one.
template <typename Iterator>
bool meets_cased(Iterator at, Iterator end) {
  at = std::find_if_not(at, end, [](char32_t c) { return has(c, kCaseIgnorable); });
  return at != end && has(*at, kCased);
}

// A sigma is cased and not ignored, so no character is passed more than twice by these looks around all sigmas of a text.
bool is_final_sigma(std::u32string_view text, size_t at) {
  const std::u32string_view before = text.substr(0, at);
  const std::u32string_view after = text.substr(at + 1);
  return meets_cased(before.rbegin(), before.rend()) && !meets_cased(after.begin(), after.end());
}

}  // namespace

char32_t lower_case(char32_t code_point) {
  if (!has(code_point, kHasLower)) {
    return code_point;
  }
  const char32_t lower = find_lower(kLowerRanges, code_point);
  return lower != code_point ? lower : find_lower(kLaterLowerRanges, code_point);
}

std::u32string lower_text(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const char32_t c = text[at];
    if (c == kDottedI) {
      out += kLowerDottedI;
    } else if (c == kSigma) {
      out += is_final_sigma(text, at) ? kFinalSigma : kSmallSigma;
    } else {
      out += has(c, kHasLower) ? find_lower(kLowerRanges, c) : c;
    }
  }
  return out;
}

}  // namespace darkroom
