#include "show/row_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/show/html_page.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RowCard small_card(const std::string& caption, const std::string& score) {
  return {.caption = caption, .pictures = {{Image::filled(2, 3, 3, 9), ""}}, .facts = {{"key", "k\"1"}, {"Score", score}}};
}

TEST(RowCards, show_pictures_captions_and_facts_escaped) {
  const std::string html = cards_html({small_card("a <b> & c", "0.5"), small_card("", "null")});
  EXPECT_THAT(html, AllOf(HasSubstr("<p>a &lt;b&gt; &amp; c</p>"), HasSubstr("width=\"2\" height=\"3\" src=\"data:image/png;base64,"),
                          HasSubstr("<dd data-name=\"Score\">0.5</dd>"), HasSubstr("k&quot;1")));
  EXPECT_EQ(cards_html({}), "");
}

TEST(RowCards, can_be_sorted_by_columns_that_hold_a_number_in_some_row) {
  const std::string html = cards_html({small_card("a", "null"), small_card("b", "-1e-3")});
  EXPECT_THAT(html, AllOf(HasSubstr("<option value=\"+score\">Score, lowest first"), HasSubstr("<option value=\"-score\">")));
  EXPECT_THAT(html, Not(HasSubstr("<option value=\"+key\">")));
}

TEST(RowCards, a_refused_picture_leaves_its_label) {
  RowCard card = small_card("[too_large] a", "1");
  card.pictures = {{Image(), "why"}};
  EXPECT_THAT(cards_html({card}), AllOf(Not(HasSubstr("<img")), HasSubstr("why")));
}

TEST(RowCards, the_script_fits_into_a_page_without_network) {
  const std::string page = render_html_page("t", cards_html({small_card("a", "1")}), cards_script());
  EXPECT_THAT(page, HasSubstr("script-src 'unsafe-inline'"));
  for (const char* reference : {"http:", "https:", "fetch(", "import(", "XMLHttp", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
}

}  // namespace
}  // namespace darkroom
