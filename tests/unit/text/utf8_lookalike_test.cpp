#include "text/utf8_lookalike.h"

#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

// A with tilde is the first byte of two in Latin-1 and Windows-1252. Its second may have been lost, or be a control character.
TEST(Utf8Lookalike, goes_on_with_what_is_lost_or_a_control_character) {
  for (const char32_t second : {U' ', U'?', U'\uFFFD', U'\u0080', U'\u009F'}) {
    EXPECT_TRUE(holds_utf8_lookalike(std::u32string{U'\u00C3', second})) << static_cast<uint32_t>(second);
    EXPECT_FALSE(holds_utf8_lookalike(std::u32string{U'A', second})) << static_cast<uint32_t>(second);
  }
  EXPECT_FALSE(holds_utf8_lookalike(U"\u00C3x"));
}

}  // namespace
}  // namespace darkroom
