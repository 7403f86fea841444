#include "darkroom/image/sheet_heading.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "darkroom/image/contact_sheet.h"

namespace darkroom {
namespace {

Image some_sheet() { return render_contact_sheet({{{Image::filled(64, 64, 3, 9), "a"}}}, {.cell_width = 64, .cell_height = 64}); }

TEST(SheetHeading, stands_above_a_sheet_that_stays_as_it_is) {
  const Image sheet = some_sheet();
  const Image headed = with_heading(sheet, "short");
  const int more = headed.height - sheet.height;
  EXPECT_GT(more, text_line_height());
  ASSERT_EQ(headed.width, sheet.width);
  for (int y = 0; y < sheet.height; ++y) {
    ASSERT_TRUE(std::equal(sheet.row(y), sheet.row(y) + sheet.width * 3, headed.row(y + more))) << y;
  }
  EXPECT_TRUE(std::any_of(headed.row(0), headed.row(more), [](uint8_t value) { return value < 128; }));
  EXPECT_EQ(with_heading(sheet, ""), sheet);
}

TEST(SheetHeading, has_at_most_four_lines) {
  const Image sheet = some_sheet();
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "word ";
  }
  const int one_line = with_heading(sheet, "a").height;
  EXPECT_EQ(with_heading(sheet, text).height - one_line, (kMostHeadingLines - 1) * text_line_height());
}

}  // namespace
}  // namespace darkroom
