#include "text/html_entities.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

// As html.unescape of Python 3.11: what is beyond Unicode becomes U+FFFD, what is in it and no character vanishes.
TEST(HtmlEntities, numbers_at_the_end_of_unicode) {
  EXPECT_EQ(unescape_html(U"a&#x10FFFD;b"), U"a\U0010FFFDb");
  EXPECT_EQ(unescape_html(U"a&#x10FFFF;b"), U"ab");
  EXPECT_EQ(unescape_html(U"a&#x110000;b"), U"a\uFFFDb");
  EXPECT_EQ(unescape_html(U"a&#xD7FF;b"), U"a\uD7FFb");
  EXPECT_EQ(unescape_html(U"a&#xD800;&#xDFFF;b"), U"a\uFFFD\uFFFDb");
  EXPECT_EQ(unescape_html(U"a&#xE000;b"), U"a\uE000b");
}

}  // namespace
}  // namespace darkroom
