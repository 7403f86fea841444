#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/core/check.h"
#include "demo/demo_run.h"
#include "demo/demo_sheet.h"
#include "demo/demo_training.h"
#include "demo/reconstruction.h"

namespace darkroom {
namespace {

TEST(ReconstructionMeasure, is_the_peak_signal_to_noise_ratio_of_bytes) {
  const Image grey = Image::filled(8, 8, 3, 100);
  EXPECT_DOUBLE_EQ(psnr_db(grey, Image::filled(8, 8, 3, 110)), 20.0 * std::log10(25.5));
  EXPECT_DOUBLE_EQ(psnr_db(Image::filled(8, 8, 3, 0), Image::filled(8, 8, 3, 255)), 0.0);
}

TEST(ReconstructionMeasure, counts_equal_pictures_as_100_db) {
  const Image grey = Image::filled(8, 8, 3, 100);
  EXPECT_DOUBLE_EQ(psnr_db(grey, grey), 100.0);
  EXPECT_THROW(psnr_db(grey, Image::filled(8, 9, 3, 100)), CheckFailure);
}

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

TEST(DemoSheet, shows_every_prompt_in_every_row) {
  std::vector<SheetRow> rows = {{"first", {}}, {"second", {}}};
  for (SheetRow& row : rows) {
    row.pictures.assign(sheet_prompts().size(), Image::filled(64, 64, 3, 7));
  }
  const std::vector<std::string> heading = {"a heading"};
  const Image sheet = draw_demo_sheet(heading, rows);
  int64_t num_dark = 0;  // Samples of the pictures' own value, which neither text nor background has.
  for (const uint8_t sample : sheet.pixels) {
    num_dark += sample == 7 ? 1 : 0;
  }
  EXPECT_EQ(num_dark, static_cast<int64_t>(rows.size() * sheet_prompts().size()) * 128 * 128 * 3);
}

TEST(DemoSheet, refuses_a_row_that_lacks_pictures) {
  const std::vector<SheetRow> rows = {{"first", {Image::filled(64, 64, 3)}}};
  EXPECT_THROW(draw_demo_sheet({}, rows), CheckFailure);
}

}  // namespace
}  // namespace darkroom
