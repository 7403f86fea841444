#include "darkroom/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

const LrScheduleOptions kCosine{.peak = 2.0, .warmup_steps = 10, .decay = LrDecay::kCosine, .total_steps = 110, .floor = 0.5};

TEST(lr_schedule, warms_up_linearly_and_never_from_zero) {
  const LrScheduleOptions options{.peak = 1.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 1'000'000'000), 1.0);
}

TEST(lr_schedule, no_warmup_starts_at_the_peak) { EXPECT_DOUBLE_EQ(learning_rate_at({.peak = 3.0, .warmup_steps = 0}, 0), 3.0); }

TEST(lr_schedule, a_cosine_ends_at_its_floor_and_stays_there) {
  EXPECT_DOUBLE_EQ(learning_rate_at(kCosine, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(kCosine, 60), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(kCosine, 110), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(kCosine, 500), 0.5);
}

TEST(lr_schedule, bad_options_are_refused) {
  EXPECT_EQ((LrScheduleOptions{.peak = 0.0}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((LrScheduleOptions{.warmup_steps = -1}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((LrScheduleOptions{.warmup_steps = 10, .decay = LrDecay::kCosine, .total_steps = 10}).validate().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ((LrScheduleOptions{.peak = 1.0, .floor = 2.0}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(kCosine.validate().is_ok());
}

}  // namespace
}  // namespace darkroom
