#include "normal_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "unicode_properties.h"

namespace darkroom {
namespace {

struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t combining_class;
};

struct Decomposition {
  char32_t composed;
  char32_t first;
  char32_t second;  // 0: none.
  bool is_composed_by_nfc;
};

struct WideForm {
  char32_t first;
  char32_t second;  // 0: none.
};

#include "normal_form.inc"

// Hangul syllables are computed (Unicode, section 3.12).
constexpr char32_t kFirstSyllable = 0xAC00, kFirstLead = 0x1100, kFirstVowel = 0x1161, kBeforeTrail = 0x11A7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTrails = 28, kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

struct Character {
  char32_t code_point;
  uint8_t combining_class;
};

// The characters that take part in a normalisation: those with all bits of `required`. The others are boundaries.
class Normalizer {
 public:
  explicit Normalizer(uint16_t required) : required_(required) {}

  std::u32string normalize(std::u32string text) {
    const auto is_settled = [&](char32_t c) { return (character_properties(c) & kNormal) != 0 || !takes_part(c); };
    if (std::ranges::all_of(text, is_settled)) {
      return text;
    }
    characters_.reserve(text.size());
    for (const char32_t c : text) {
      decompose(c);
    }
    order_marks();
    compose(text);
    return text;
  }

 private:
  bool takes_part(char32_t c) const { return (character_properties(c) & required_) == required_; }

  void decompose(char32_t c);
  void order_marks();
  void compose(std::u32string& out) const;

  uint16_t required_;
  std::vector<Character> characters_;
};

uint8_t combining_class(char32_t c) {
  const auto after = std::ranges::upper_bound(kCombiningRanges, c, {}, &CombiningRange::first);
  return std::prev(after)->combining_class;
}

void Normalizer::decompose(char32_t c) {
  const uint16_t properties = character_properties(c);
  if (const char32_t syllable = c - kFirstSyllable; c >= kFirstSyllable && syllable < kNumSyllables) {
    characters_.push_back({kFirstLead + syllable / (kNumVowels * kNumTrails), 0});
    characters_.push_back({kFirstVowel + syllable / kNumTrails % kNumVowels, 0});
    if (syllable % kNumTrails != 0) {
      characters_.push_back({kBeforeTrail + syllable % kNumTrails, 0});
    }
  } else if ((properties & required_) != required_ || (properties & (kHasDecomposition | kIsMark)) == 0) {
    characters_.push_back({c, 0});
  } else if ((properties & kHasDecomposition) != 0) {
    const auto found = std::ranges::lower_bound(kDecompositions, c, {}, &Decomposition::composed);
    decompose(found->first);
    if (found->second != 0) {
      decompose(found->second);
    }
  } else {
    characters_.push_back({c, combining_class(c)});
  }
}

// Sorts the marks of one run by class and keeps those of one class in their order: by insertion where they are few, else by
// counting, so that a run of any length takes linear time.
void sort_marks(std::span<Character> marks) {
  constexpr size_t kFew = 16;
  if (marks.size() <= kFew) {
    for (size_t i = 1; i < marks.size(); ++i) {
      const auto place = std::upper_bound(marks.begin(), marks.begin() + static_cast<std::ptrdiff_t>(i), marks[i].combining_class,
                                          [](uint8_t value, const Character& mark) { return value < mark.combining_class; });
      std::rotate(place, marks.begin() + static_cast<std::ptrdiff_t>(i), marks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    return;
  }
  std::array<size_t, 257> places{};
  for (const Character& mark : marks) {
    ++places[mark.combining_class + 1u];
  }
  for (size_t i = 1; i < places.size(); ++i) {
    places[i] += places[i - 1];
  }
  std::vector<Character> sorted(marks.size());
  for (const Character& mark : marks) {
    sorted[places[mark.combining_class]++] = mark;
  }
  std::ranges::copy(sorted, marks.begin());
}

void Normalizer::order_marks() {
  const auto is_mark = [](const Character& c) { return c.combining_class != 0; };
  for (auto at = characters_.begin(); at != characters_.end();) {
    const auto begin = std::find_if(at, characters_.end(), is_mark);
    at = std::find_if_not(begin, characters_.end(), is_mark);
    sort_marks({begin, at});
  }
}

struct ComposedPair {
  uint64_t key;
  char32_t composed;
};

uint64_t composition_key(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

// All pairs that NFC composes, by their keys.
const std::vector<ComposedPair>& composed_pairs() {
  static const std::vector<ComposedPair> pairs = [] {
    std::vector<ComposedPair> found;
    for (const Decomposition& step : kDecompositions) {
      if (step.is_composed_by_nfc) {
        found.push_back({composition_key(step.first, step.second), step.composed});
      }
    }
    std::ranges::sort(found, {}, &ComposedPair::key);
    return found;
  }();
  return pairs;
}

// The character that two make, or 0.
char32_t compose_pair(char32_t first, char32_t second) {
  const char32_t lead = first - kFirstLead;
  const char32_t vowel = second - kFirstVowel;
  if (first >= kFirstLead && lead < kNumLeads && second >= kFirstVowel && vowel < kNumVowels) {
    return kFirstSyllable + (lead * kNumVowels + vowel) * kNumTrails;
  }
  const char32_t syllable = first - kFirstSyllable;
  if (first >= kFirstSyllable && syllable < kNumSyllables && syllable % kNumTrails == 0 && second > kBeforeTrail &&
      second < kBeforeTrail + kNumTrails) {
    return first + (second - kBeforeTrail);
  }
  const uint64_t key = composition_key(first, second);
  const auto found = std::ranges::lower_bound(composed_pairs(), key, {}, &ComposedPair::key);
  return found != composed_pairs().end() && found->key == key ? found->composed : 0;
}

void Normalizer::compose(std::u32string& out) const {
  constexpr size_t kNone = static_cast<size_t>(-1);
  out.clear();
  size_t starter = kNone;  // Where the last character without a class stands in `out`.
  uint8_t last_class = 0;  // Of the last character in `out`, if it stands behind the starter.
  for (const auto& [c, combining] : characters_) {
    const bool is_adjacent = starter + 1 == out.size();
    if (starter != kNone && takes_part(c) && (is_adjacent || last_class < combining)) {
      if (const char32_t composed = compose_pair(out[starter], c); composed != 0) {
        out[starter] = composed;
        continue;
      }
    }
    if (combining == 0) {
      starter = takes_part(c) ? out.size() : kNone;
    }
    last_class = combining;
    out += c;
  }
}

}  // namespace

std::u32string normalize_nfc(std::u32string text) { return Normalizer(0).normalize(std::move(text)); }

std::u32string normalize_nfc_unicode_9(std::u32string text) { return Normalizer(kInUnicode9).normalize(std::move(text)); }

void append_plain_form(char32_t code_point, std::u32string& out) {
  const WideForm& form = kWideForms[code_point - 0xFF01];
  out += form.first;
  if (form.second != 0) {
    out += form.second;
  }
}

}  // namespace darkroom
