#include "darkroom/serve/rate_limit.h"

#include <gtest/gtest.h>

#include "darkroom/core/clock.h"

namespace darkroom {
namespace {

using std::chrono::seconds;

TEST(rate_limit, lets_a_minute_s_worth_pass_at_once_and_then_evenly) {
  FakeClock clock;
  RateLimit rate(6, clock);
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(rate.take("a").has_value()) << i;
  }
  EXPECT_EQ(rate.take("a"), seconds(10));
  clock.advance(seconds(4));
  EXPECT_EQ(rate.take("a"), seconds(6));
  clock.advance(seconds(6));
  EXPECT_FALSE(rate.take("a").has_value());
  EXPECT_EQ(rate.take("a"), seconds(10));
}

TEST(rate_limit, counts_each_client_apart) {
  FakeClock clock;
  RateLimit rate(1, clock);
  EXPECT_FALSE(rate.take("a").has_value());
  EXPECT_EQ(rate.take("a"), seconds(60));
  EXPECT_FALSE(rate.take("b").has_value());
}

TEST(rate_limit, saves_no_more_than_a_minute_s_worth) {
  FakeClock clock;
  RateLimit rate(2, clock);
  clock.advance(std::chrono::hours(24));
  EXPECT_FALSE(rate.take("a").has_value());
  clock.advance(std::chrono::hours(24));
  EXPECT_FALSE(rate.take("a").has_value());
  EXPECT_FALSE(rate.take("a").has_value());
  EXPECT_EQ(rate.take("a"), seconds(30));
}

TEST(rate_limit, of_less_than_one_a_minute_lets_one_pass_and_waits_longer) {
  FakeClock clock;
  RateLimit rate(0.5, clock);
  EXPECT_FALSE(rate.take("a").has_value());
  EXPECT_EQ(rate.take("a"), seconds(120));
}

TEST(rate_limit, of_zero_is_none) {
  RateLimit rate(0);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(rate.take("a").has_value());
  }
}

}  // namespace
}  // namespace darkroom
