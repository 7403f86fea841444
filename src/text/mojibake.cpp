#include "mojibake.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "unicode_classes.h"
#include "utf8_lookalike.h"

namespace darkroom {
namespace {

// A set of characters is a bit, so that a step of a pattern is one AND.
using Sets = uint64_t;
constexpr Sets bit(int number) { return Sets{1} << number; }

// Categories of the table.
constexpr Sets kCommon = bit(0), kC1 = bit(1), kBad = bit(2), kLaw = bit(3), kCurrency = bit(4), kStartPunctuation = bit(5),
               kEndPunctuation = bit(6), kNumeric = bit(7), kKaomoji = bit(8), kUpperAccented = bit(9), kLowerAccented = bit(10),
               kUpperCommon = bit(11), kLowerCommon = bit(12), kBox = bit(13);
// Python's \w and \s, and sets of single patterns.
constexpr Sets kWord = bit(14), kSpace = bit(15), kLower = bit(16), kLetter = bit(17), kNoLetter = bit(18), kBlank = bit(19),
               kNoNewline = bit(20), kLigatureOe = bit(21), kDegree = bit(22), kLead1252 = bit(23), kTail1252 = bit(24), kTimes = bit(25),
               kSquares = bit(26), kLeadArabic = bit(27), kTailArabic = bit(28), kLeadIndic = bit(29), kTailIndic = bit(30),
               kRoot = bit(31), kAfterRoot = bit(32), kApproximately = bit(33), kAfterApproximately = bit(34), kLowQuote = bit(35),
               kUmlautA = bit(36), kAfterUmlautA = bit(37), kAfterLowQuote = bit(38), kThirdRoman = bit(39), kSmallVe = bit(40),
               kDje = bit(41), kCyrillicLead = bit(42), kCyrillicTail = bit(43), kGhe = bit(44), kShortU = bit(45), kVe = bit(46),
               kTildeA = bit(47), kAfterTildeA = bit(48), kTildeOrHatA = bit(49), kSentenceMark = bit(50), kHatA = bit(51), kBeta = bit(52),
               kEuro = bit(53), kAfterBetaEuro = bit(54), kGreekLead = bit(55), kMacronA = bit(56);

struct CategoryRange {
  char32_t first;
  char32_t last;
  Sets sets;
};
constexpr CategoryRange kCategories[] = {
#include "mojibake_table.inc"
};

struct CharacterSet {
  Sets set;
  std::u32string_view characters;
};
constexpr CharacterSet kCharacterSets[] = {
    {kBlank, U" "},
    {kLigatureOe, U"Œœ"},
    {kDegree, U"°"},
    {kLead1252, U"ÂÃÎÐ"},
    {kTail1252, U"€œŠš¢£Ÿž\u00A0\u00AD®©°·»–—´"},
    {kTimes, U"×"},
    {kSquares, U"²³"},
    {kLeadArabic, U"ØÙ"},
    {kTailArabic, U"ŸŠ®°µ»"},
    {kLeadIndic, U"à"},
    {kTailIndic, U"²µ¹¼½¾"},
    {kRoot, U"√"},
    {kAfterRoot, U"±∂†≠®™´≤≥¥µø"},
    {kApproximately, U"≈"},
    {kAfterApproximately, U"°¢"},
    {kLowQuote, U"‚"},
    {kUmlautA, U"Ä"},
    {kAfterUmlautA, U"ìîïòôúùû†°¢π"},
    {kAfterLowQuote, U"âó"},
    {kThirdRoman, U"àä°ê"},
    {kSmallVe, U"в"},
    {kDje, U"Ђ"},
    {kCyrillicLead, U"ВГРС"},
    {kCyrillicTail, U"°µ"},
    {kGhe, U"Г"},
    {kShortU, U"ў"},
    {kVe, U"В"},
    {kTildeA, U"Ã"},
    {kAfterTildeA, U"\u00A0¡"},
    {kTildeOrHatA, U"ÃÂ"},
    {kSentenceMark, U".,?!"},
    {kHatA, U"Â"},
    {kBeta, U"β"},
    {kEuro, U"€"},
    {kAfterBetaEuro, U"™\u00A0\u0386\u00AD®°"},
    {kGreekLead, U"ΒΓΞΟ"},
    {kMacronA, U"ā"},
};

constexpr Sets kAccented = kLowerAccented | kUpperAccented;
constexpr Sets kPunctuation = kStartPunctuation | kEndPunctuation;
constexpr Sets kAroundBad = kAccented | kBox | kPunctuation | kCurrency | kNumeric | kLaw;
constexpr Sets kArabicTail = kTailArabic | kCommon | kCurrency | kBad | kNumeric | kStartPunctuation;

// A sequence of characters that text rarely holds; steps that are 0 are not used.
using Pattern = std::array<Sets, 7>;
constexpr Pattern kPatterns[] = {
    {kC1},
    {kAroundBad | kBad, kBad},
    {kLetter, kLowerCommon | kUpperCommon, kBad},
    {kBad, kAroundBad},
    {kLowerAccented | kLowerCommon | kBox | kEndPunctuation | kCurrency | kNumeric, kUpperAccented},
    {kBox | kEndPunctuation | kCurrency | kNumeric, kLowerAccented},
    {kLowerAccented | kBox | kEndPunctuation, kCurrency},
    {kSpace, kUpperAccented, kCurrency},
    {kUpperAccented | kBox, kNumeric | kLaw},
    {kAccented | kBox | kCurrency | kEndPunctuation, kStartPunctuation, kNumeric},
    {kAccented | kCurrency | kNumeric | kBox | kLaw, kEndPunctuation, kStartPunctuation},
    {kCurrency | kNumeric | kBox, kStartPunctuation},
    {kLower, kUpperAccented, kStartPunctuation | kCurrency},
    {kBox, kKaomoji},
    {kAccented | kCurrency | kNumeric | kPunctuation | kLaw, kBox},
    {kBox, kEndPunctuation},
    {kAccented, kPunctuation, kWord},
    {kLigatureOe, kNoLetter},
    {kUpperAccented, kDegree},
    {kLead1252, kTail1252 | kPunctuation},
    {kTimes, kSquares},
    {kLeadArabic, kArabicTail, kLeadArabic, kArabicTail},
    {kLeadIndic, kTailIndic},
    {kRoot, kAfterRoot},
    {kApproximately, kAfterApproximately},
    {kLowQuote, kUmlautA, kAfterUmlautA},
    {kLowQuote, kAfterLowQuote, kThirdRoman},
    {kSmallVe, kDje},
    {kCyrillicLead, kC1 | kBad | kPunctuation | kCurrency | kCyrillicTail, kCyrillicLead},
    {kGhe, kShortU, kVe, kDje, kVe, kNoNewline, kLetter | kBlank},
    {kTildeA, kAfterTildeA},
    {kLower, kTildeOrHatA, kBlank},
    {kLower, kSpace, kTildeOrHatA, kBlank},
    {kLower | kSentenceMark | kEndPunctuation, kHatA, kBlank | kPunctuation},
    {kBeta, kEuro, kAfterBetaEuro},
    {kGreekLead, kC1 | kBad | kPunctuation | kCurrency | kDegree, kGreekLead},
    {kMacronA, kEuro},
};

Sets find_sets(char32_t c) {
  Sets sets = c == U'\n' ? 0 : kNoNewline;
  const bool is_lower = c >= U'a' && c <= U'z';
  const bool is_letter = is_lower || (c >= U'A' && c <= U'Z');
  sets |= (is_letter ? kLetter : kNoLetter) | (is_lower ? kLower : 0);
  const CharacterClass kind = character_class(c);
  sets |= kind == CharacterClass::kLetter || kind == CharacterClass::kNumber || c == U'_' ? kWord : 0;
  sets |= kind == CharacterClass::kSpace || (c >= 0x1C && c <= 0x1F) ? kSpace : 0;
  for (const CategoryRange& range : kCategories) {
    sets |= c >= range.first && c <= range.last ? range.sets : 0;
  }
  for (const CharacterSet& set : kCharacterSets) {
    sets |= set.characters.find(c) != std::u32string_view::npos ? set.set : 0;
  }
  return sets;
}

Sets sets_of(char32_t c) {
  constexpr char32_t kTabled = 0x2700;  // Beyond it lie four characters of the categories.
  static const std::vector<Sets> kTable = [] {
    std::vector<Sets> table(kTabled);
    for (char32_t code_point = 0; code_point < kTabled; ++code_point) {
      table[code_point] = find_sets(code_point);
    }
    return table;
  }();
  return c < kTabled ? kTable[c] : find_sets(c);
}

bool matches(const Pattern& pattern, std::span<const Sets> sets) {
  for (size_t step = 0; step < pattern.size() && pattern[step] != 0; ++step) {
    if (step >= sets.size() || (sets[step] & pattern[step]) == 0) {
      return false;
    }
  }
  return true;
}

// ftfy's is_bad.
bool is_bad(std::u32string_view line) {
  thread_local std::vector<Sets> line_sets;
  line_sets.clear();
  for (const char32_t c : line) {
    line_sets.push_back(sets_of(c));
  }
  const std::span<const Sets> sets = line_sets;
  if (sets.size() > 1 && (sets[0] & kTildeOrHatA) != 0 && (sets[1] & kBlank) != 0) {
    return true;
  }
  for (size_t at = 0; at < sets.size(); ++at) {
    if (std::ranges::any_of(kPatterns, [&](const Pattern& pattern) { return matches(pattern, sets.subspan(at)); })) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool looks_like_mojibake(std::u32string_view line) { return holds_utf8_lookalike(line) && is_bad(line); }

}  // namespace darkroom
