#include "darkroom/core/base64.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

// RFC 4648, section 10.
TEST(base64, has_the_texts_of_the_standard) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("f"), "Zg==");
  EXPECT_EQ(encode_base64("fo"), "Zm8=");
  EXPECT_EQ(encode_base64("foo"), "Zm9v");
  EXPECT_EQ(encode_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(encode_base64(std::string_view("\xff\x00\xfe", 3)), "/wD+");
}

TEST(base64, reads_what_it_wrote_and_refuses_the_rest) {
  for (const std::string text : {"", "f", "fo", "foo", "foobar", "\x80\xff\x7f"}) {
    EXPECT_EQ(decode_base64(encode_base64(text)), text);
  }
  EXPECT_EQ(decode_base64("abc"), std::nullopt);
  EXPECT_EQ(decode_base64("a?=="), std::nullopt);
}

}  // namespace
}  // namespace darkroom
