#include "darkroom/show/html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HtmlPage, escapes_what_html_and_xml_give_a_meaning) {
  EXPECT_EQ(escape_html("<img src=\"x\" onerror='a&b'>"), "&lt;img src=&quot;x&quot; onerror='a&amp;b'&gt;");
  EXPECT_EQ(escape_html(""), "");
  EXPECT_EQ(escape_html("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1b", 4)), "a\uFFFDb\uFFFD");
  EXPECT_EQ(escape_html("Gr\u00fc\u00dfe \u65e5\u672c"), "Gr\u00fc\u00dfe \u65e5\u672c");
}

TEST(HtmlPage, a_png_becomes_a_data_url_whatever_its_length) {
  const std::string start = "data:image/png;base64,";
  EXPECT_EQ(png_data_url(""), start);
  EXPECT_EQ(png_data_url("f"), start + "Zg==");
  EXPECT_EQ(png_data_url("fo"), start + "Zm8=");
  EXPECT_EQ(png_data_url("foo"), start + "Zm9v");
  EXPECT_EQ(png_data_url("foob"), start + "Zm9vYg==");
  EXPECT_EQ(png_data_url(std::string_view("\0\xff\xfe", 3)), start + "AP/+");
}

TEST(HtmlPage, needs_no_network_and_runs_nothing) {
  const std::string page = render_html_page("<script>alert(1)</script>", "<p>body</p>");
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("<p>body</p>"));
  EXPECT_THAT(page, HasSubstr("<h1>&lt;script&gt;"));
  for (const char* reference : {"<script", "http:", "https:", "//", "@import", "url(", "<link"}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
}

TEST(HtmlPage, a_page_runs_its_own_script_only_when_it_has_one) {
  EXPECT_THAT(render_html_page("t", ""), HasSubstr("content=\"default-src 'none'; style-src"));
  const std::string page = render_html_page("t", "<p></p>", "run();");
  EXPECT_THAT(page, HasSubstr("<p></p><script>run();</script></body>"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'unsafe-inline'; style-src"));
  EXPECT_THROW(render_html_page("t", "", "\"</script>\""), CheckFailure);
}

}  // namespace
}  // namespace darkroom
