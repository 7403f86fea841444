#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "darkroom/core/utf8.h"
#include "text/ftfy_fixes.h"
#include "text/html_entities.h"
#include "text/normal_form.h"

// Work is counted, not timed: tools/check/linear_parsers.py times the same inputs.
namespace darkroom {
namespace {

std::u32string repeat(std::u32string_view part, size_t times) {
  std::u32string text;
  for (size_t i = 0; i < times; ++i) {
    text += part;
  }
  return text;
}

struct Nest {
  std::u32string text;
  std::u32string want;
};

std::vector<Nest> nested_references(size_t depth) {
  return {
      {U"&" + repeat(U"amp;", depth), U"&"},
      {U"&" + repeat(U"amp;", depth) + U"lt;", U"<"},
      {U"&" + repeat(U"#38;", depth) + U"#65;", U"A"},
      {repeat(U"&semi", depth) + U";", U";"},
      {repeat(U"&#x37E", depth) + U";", U";"},   // The Greek question mark, which NFC makes a semicolon.
      {U"&" + repeat(U"#xFF06;", depth), U"&"},  // A full-width ampersand.
      {U"&" + repeat(U"#xFF06;", depth) + U"x", U"&x"},
  };
}

TEST(LinearTime, nested_references_are_read_a_fixed_number_of_times) {
  for (const size_t depth : {1u, 7u, 8u, 9u, 10u, 100u, 20000u}) {
    for (const Nest& nest : nested_references(depth)) {
      const FixedText fixed = fix_text(nest.text);
      if (depth <= 100) {
        EXPECT_EQ(encode_utf8(fixed.text), encode_utf8(nest.want)) << depth << ": " << encode_utf8(nest.text.substr(0, 40));
      } else {
        EXPECT_TRUE(fixed.text == nest.want) << encode_utf8(nest.text.substr(0, 40));
      }
      EXPECT_LE(fixed.num_characters_read, 12 * nest.text.size()) << encode_utf8(nest.text.substr(0, 40));
    }
  }
}

TEST(LinearTime, nested_references_are_resolved_as_by_single_passes) {
  const std::vector<std::u32string> parts = {
      U"&",       U"amp;",  U"&amp;", U"#38;", U"&#x26;", U"lt;", U"&LT;",  U"&EACUTE;",
      U"semi",    U"&semi", U";",     U"x",    U"#",      U"&#",  U"&num;", U"aaaaaaaaaaaaaaaaaaaaaaaa",
      U"&fjlig;", U"&#59;", U" "};
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::u32string text;
    for (int k = static_cast<int>(random() % 20); k >= 0; --k) {
      text += parts[random() % parts.size()];
    }
    std::u32string want = text;
    for (std::u32string next = unescape_plain_entities(want); next != want; next = unescape_plain_entities(want)) {
      want = next;
    }
    const auto keep = [](std::u32string resolved) { return resolved; };
    ASSERT_EQ(encode_utf8(unescape_nested_entities(text, keep)), encode_utf8(want)) << encode_utf8(text);
  }
}

TEST(LinearTime, a_line_of_many_levels_is_listed_where_ftfy_may_see_mojibake_between_them) {
  EXPECT_FALSE(fix_text(U"&" + repeat(U"amp;", 50)).has_mojibake);
  EXPECT_TRUE(fix_text(U"&" + repeat(U"amp;", 50) + U"ldquo;").has_mojibake);
  EXPECT_TRUE(fix_text(U"\u00E9 &" + repeat(U"amp;", 50)).has_mojibake);
  EXPECT_FALSE(fix_text(U"\u00E9 &amp;amp;ldquo;").has_mojibake);
}

TEST(NormalForm, orders_long_runs_of_marks_as_short_ones) {
  // Below (220), below overlay (1) and above (230), in any order; marks of one class keep theirs.
  const std::u32string marks = U"\u0301\u0323\u0334\u0300\u0316";
  for (const size_t times : {1u, 3u, 4u, 50000u}) {
    std::u32string want = U"q" + repeat(U"\u0334", times);
    want += repeat(U"\u0323\u0316", times);
    want += repeat(U"\u0301\u0300", times);
    EXPECT_TRUE(normalize_nfc(U"q" + repeat(marks, times)) == want) << times;
  }
}

TEST(NormalForm, composes_and_decomposes) {
  const std::vector<std::pair<std::u32string, std::u32string>> cases = {
      {U"e\u0301", U"\u00E9"},
      {U"\u0344", U"\u0308\u0301"},
      {U"\u212B\u2126", U"\u00C5\u03A9"},
      {U"\u0958", U"\u0915\u093C"},                          // Excluded from composition.
      {U"\u1100\u1161\u11A8\uAC00\u11A8", U"\uAC01\uAC01"},  // Hangul.
      {U"\u1E9B\u0323", U"\u1E9B\u0323"},
      {U"s\u0323\u0307", U"\u1E69"},
      {U"a\u0334\u0301", U"\u00E1\u0334"},
      {U"a\u0301\u0301", U"\u00E1\u0301"},
      {U"<\u0338 x", U"\u226E x"},
      {U"\U00011935\U00011930", U"\U00011938"},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(encode_utf8(normalize_nfc(text)), encode_utf8(want));
  }
  // Newer than Unicode 9: for the package tokenizers neither a mark nor a part of a pair.
  EXPECT_TRUE(normalize_nfc_unicode_9(U"\U00011935\U00011930") == U"\U00011935\U00011930");
  EXPECT_TRUE(normalize_nfc(U"x\u0301\u07FD") == U"x\u07FD\u0301");
  EXPECT_TRUE(normalize_nfc_unicode_9(U"x\u0301\u07FD") == U"x\u0301\u07FD");
}

}  // namespace
}  // namespace darkroom
