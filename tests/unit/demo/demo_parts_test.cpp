#include <gtest/gtest.h>

#include <algorithm>

#include "darkroom/core/check.h"
#include "demo/demo_run.h"
#include "demo/demo_sheet.h"
#include "demo/demo_training.h"

namespace darkroom {
namespace {

TEST(DemoTraining, plans_the_steps_that_fit_into_the_time) {
  EXPECT_EQ(plan_steps(270, 320, 64), 1350);
  EXPECT_EQ(plan_steps(269.9, 320, 64), 1349);
}

TEST(DemoTraining, plans_enough_steps_for_the_loss_of_the_summary) {
  EXPECT_EQ(plan_steps(1, 320, 64), 50);
  EXPECT_EQ(plan_steps(-5, 320, 64), 50);
}

TEST(DemoOptions, name_the_first_bad_field) {
  EXPECT_TRUE(DemoOptions{}.validate().is_ok());
  EXPECT_EQ(DemoOptions{.output = ""}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(DemoOptions{.minutes = 0}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(DemoOptions{.minutes = std::nan("")}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(DemoOptions{.seed = -1}.validate().code(), StatusCode::kInvalidArgument);
}

SheetBand band_of(std::vector<std::string> prompts, size_t num_rows, uint8_t value) {
  SheetBand band{"a band", std::move(prompts), {}};
  for (size_t row = 0; row < num_rows; ++row) {
    band.rows.push_back({"row", std::vector<Image>(band.prompts.size(), Image::filled(64, 64, 3, value))});
  }
  return band;
}

int64_t samples_of(const Image& sheet, uint8_t value) { return std::count(sheet.pixels.begin(), sheet.pixels.end(), value); }

TEST(DemoSheet, shows_every_picture_of_every_band) {
  const SheetBand bands[] = {band_of({"one", "two", "three"}, 2, 7), band_of({"four"}, 3, 9)};
  const std::vector<std::string> heading = {"a heading"};
  const Image sheet = draw_demo_sheet(heading, bands);
  // Neither text nor background has the pictures' values.
  EXPECT_EQ(samples_of(sheet, 7), 2 * 3 * 128 * 128 * 3);
  EXPECT_EQ(samples_of(sheet, 9), 3 * 128 * 128 * 3);
}

TEST(DemoSheet, writes_a_long_prompt_whole_on_several_lines) {
  const SheetBand short_prompt[] = {band_of({"foot"}, 1, 7)};
  const SheetBand long_prompt[] = {band_of({"foot: medium-dark skin tone"}, 1, 7)};
  EXPECT_GT(draw_demo_sheet({}, long_prompt).height, draw_demo_sheet({}, short_prompt).height);
}

TEST(DemoSheet, refuses_a_row_that_lacks_pictures) {
  SheetBand bands[] = {band_of({"one", "two"}, 1, 7)};
  bands[0].rows[0].pictures.pop_back();
  EXPECT_THROW(draw_demo_sheet({}, bands), CheckFailure);
}

}  // namespace
}  // namespace darkroom
