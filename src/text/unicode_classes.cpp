#include "unicode_classes.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <span>

namespace darkroom {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// Assigned in Unicode 15.1 and 16.
constexpr CodePointRange kNewLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85},
    {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
    {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C},
    {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
constexpr CodePointRange kNewNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};

// Upper-case letters of Unicode 16 and 17: ranges whose lower case lies a fixed distance away.
struct CaseRange {
  char32_t first;
  char32_t last;
  int32_t to_lower;
};
constexpr CaseRange kNewCapitals[] = {
    {0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
    {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
    {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
    {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B},
};

bool is_within(std::span<const CodePointRange> ranges, char32_t code_point) {
  const auto after = std::ranges::upper_bound(ranges, code_point, {}, &CodePointRange::first);
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

}  // namespace

CharacterClass find_character_class(char32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  const uint32_t category = U_MASK(u_charType(c));
  if (category & U_GC_L_MASK)
    return CharacterClass::kLetter;
  if (category & U_GC_N_MASK)
    return CharacterClass::kNumber;
  if (u_isUWhiteSpace(c))
    return CharacterClass::kSpace;
  if (category & U_GC_CN_MASK) {
    if (is_within(kNewLetters, code_point))
      return CharacterClass::kLetter;
    if (is_within(kNewNumbers, code_point))
      return CharacterClass::kNumber;
  }
  return CharacterClass::kOther;
}

char32_t lower_case(char32_t code_point) {
  const auto lower = static_cast<char32_t>(u_tolower(static_cast<UChar32>(code_point)));
  if (lower != code_point)
    return lower;
  for (const CaseRange& range : kNewCapitals) {
    if (code_point >= range.first && code_point <= range.last)
      return static_cast<char32_t>(code_point + range.to_lower);
  }
  return code_point;
}

}  // namespace darkroom
