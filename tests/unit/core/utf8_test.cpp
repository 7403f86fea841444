#include "darkroom/core/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace darkroom {
namespace {

TEST(Utf8, gives_back_every_character) {
  std::u32string all;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) {
      all += c;
    }
  }
  const std::string bytes = encode_utf8(all);
  EXPECT_EQ(bytes.size(), 0x80u + 2 * 0x780u + 3 * (0xF800u - 0x800u) + 4 * 0x100000u);
  EXPECT_TRUE(decode_utf8(bytes) == all);
  EXPECT_EQ(replace_invalid_utf8(bytes), std::make_pair(bytes, false));
}

TEST(Utf8, writes_the_bytes_of_the_standard) {
  EXPECT_EQ(encode_utf8(U"A\u00E9\u20AC\U0001F600"), "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(Utf8, reads_each_ill_formed_part_as_one_replacement) {
  EXPECT_EQ(decode_utf8("a\xFF\xE2\x82z\xED\xA0\x80"), U"a\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD");
  const Utf8Character cut = first_character("\xF0\x9F\x98x");
  EXPECT_EQ(cut.code_point, kReplacementCharacter);
  EXPECT_EQ(cut.num_bytes, 3u);
  EXPECT_FALSE(cut.is_valid);
  EXPECT_TRUE(first_character("\xEF\xBF\xBD").is_valid);
}

TEST(ReplaceInvalidUtf8, keeps_valid_text_and_replaces_maximal_subparts) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"plain", "plain"},
      {"caf\xC3\xA9 \xF0\x9F\x98\x80", "caf\xC3\xA9 \xF0\x9F\x98\x80"},
      {"\xFF", "\xEF\xBF\xBD"},
      {"a\xC3", "a\xEF\xBF\xBD"},
      {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
      {"\xF0\x9F\x98x", "\xEF\xBF\xBDx"},
      {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xE2\x82", "\xEF\xBF\xBD"},
      {"\xE2\x28\xA1", "\xEF\xBF\xBD(\xEF\xBF\xBD"},
  };
  for (const auto& [input, expected] : cases) {
    const auto [valid, replaced] = replace_invalid_utf8(input);
    EXPECT_EQ(valid, expected);
    EXPECT_EQ(replaced, input != expected);
  }
}

}  // namespace
}  // namespace darkroom
