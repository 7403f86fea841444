#include "text/unicode_properties.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

// The first 0x32000 code points are looked up in a table, the others searched. CJK extension H lies across that border.
TEST(UnicodeProperties, are_the_same_on_both_sides_of_the_table_s_end) {
  const uint16_t letter = character_properties(0x31FFF);
  EXPECT_NE(letter, 0);
  for (const char32_t code_point : {0x32000, 0x32001, 0x323AF}) {
    EXPECT_EQ(character_properties(code_point), letter) << static_cast<uint32_t>(code_point);
  }
  EXPECT_NE(character_properties(0x323B0), letter);
}

}  // namespace
}  // namespace darkroom
