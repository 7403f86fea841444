#include "web/fetch_places.h"

#include <gtest/gtest.h>

#include <set>

#include "web/fetch_engine.h"
#include "web/fetch_sizes.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Places : public testing::Test {
 protected:
  // Time passes in steps shorter than a look; attempts of `moving_` make progress in each.
  void pass(milliseconds time) {
    for (const auto end = now_ + time; now_ < end;) {
      now_ += milliseconds(25);
      places_.look(now_, [&](uint64_t attempt) { return moving_.contains(attempt); });
    }
  }
  void start(uint64_t attempt) {
    ASSERT_TRUE(places_.has_place()) << attempt;
    places_.start(attempt, now_);
  }

  FetchPlaces::Instant now_{seconds(1'000)};
  FetchPlaces places_{2, 5};
  std::set<uint64_t> moving_;
};

TEST_F(Places, an_attempt_without_progress_leaves_its_place_after_a_second) {
  start(1);
  start(2);
  EXPECT_FALSE(places_.has_place());
  moving_ = {2};
  pass(milliseconds(900));
  EXPECT_FALSE(places_.has_place());
  pass(milliseconds(250));
  EXPECT_EQ(places_.num_slow(), 1);
  start(3);
  EXPECT_FALSE(places_.has_place());
}

TEST_F(Places, one_that_goes_on_counts_again) {
  start(1);
  pass(milliseconds(1200));
  EXPECT_EQ(places_.num_slow(), 1);
  start(2);
  start(3);
  moving_ = {1, 2, 3};
  pass(milliseconds(300));
  EXPECT_EQ(places_.num_slow(), 0);
  EXPECT_EQ(places_.num_active(), 3);  // One more than there are places: nothing is taken from who has begun.
  places_.end(2);
  EXPECT_FALSE(places_.has_place());
  places_.end(3);
  EXPECT_TRUE(places_.has_place());
}

TEST_F(Places, slow_ones_are_bounded_and_gone_when_they_end) {
  for (uint64_t attempt = 1; attempt <= 5; ++attempt) {
    start(attempt);
    pass(milliseconds(1200));
  }
  EXPECT_EQ(places_.num_slow(), 5);
  EXPECT_FALSE(places_.has_place());
  places_.end(4);
  EXPECT_TRUE(places_.has_place());
  EXPECT_EQ(places_.num_slow(), 4);
}

TEST_F(Places, patience_is_four_times_the_median_time_to_a_first_byte) {
  EXPECT_EQ(places_.patience(), seconds(1));
  const auto patience_after = [&](milliseconds usual, milliseconds rare) {
    for (int i = 0; i < 2'000; ++i) {
      places_.note_first_byte(i % 4 == 0 ? rare : usual);
    }
    return std::chrono::duration<double>(places_.patience()).count();
  };
  EXPECT_EQ(patience_after(milliseconds(1), seconds(9)), 0.25);  // Never less.
  EXPECT_NEAR(patience_after(milliseconds(100), seconds(9)), 0.4, 0.4 * 0.1);
  EXPECT_NEAR(patience_after(seconds(1), milliseconds(1)), 4, 4 * 0.1);
  EXPECT_EQ(patience_after(seconds(9), milliseconds(1)), 10);  // Never more.
}

TEST_F(Places, fewer_places_when_no_more_files_may_be_opened) {
  start(1);
  places_.lower_to(1);
  EXPECT_FALSE(places_.has_place());
  places_.lower_to(0);
  places_.end(1);
  EXPECT_TRUE(places_.has_place());
  start(2);
  EXPECT_FALSE(places_.has_place());
}

TEST_F(Places, are_looked_at_only_while_somebody_is_there) {
  EXPECT_FALSE(places_.next_look());
  start(1);
  EXPECT_EQ(places_.next_look(), now_ + FetchPlaces::kLookEvery);
  places_.end(1);
  EXPECT_FALSE(places_.next_look());
  pass(seconds(1));
  start(1);  // The same name may come again.
  EXPECT_EQ(places_.next_look(), now_ + FetchPlaces::kLookEvery);
}

TEST(FetchRoom, follows_from_the_limit_of_open_files) {
  EXPECT_EQ(plan_room(256, 20'000).num_places, 14'952);
  EXPECT_GE(plan_room(256, 20'000).num_places - 256, 8'192);
  EXPECT_EQ(plan_room(256, 1'000'000).num_places, Fetcher::kMaxPlaces);
  EXPECT_EQ(plan_room(256, 1'024).num_places, 720);
  EXPECT_EQ(plan_room(256, 320).num_places, 256);
  EXPECT_EQ(plan_room(1, descriptors_needed(1)).num_places, 1);
  EXPECT_EQ(plan_room(1, descriptors_needed(1)).num_kept_connections, 1);
  EXPECT_EQ(plan_room(20'000, 32'768).num_places, 20'000);
}

TEST(FetchSizes, expect_the_upper_quartile_within_bounds) {
  FetchSizes sizes;
  EXPECT_EQ(sizes.expected(), FetchSizes::kLeast);
  for (int i = 0; i < 1024; ++i) {
    sizes.note(1'000 * i);
  }
  EXPECT_EQ(sizes.expected(), 768'000);
  for (int i = 0; i < 1024; ++i) {
    sizes.note(50'000'000);
  }
  EXPECT_EQ(sizes.expected(), FetchSizes::kMost);
  for (int i = 0; i < 1024; ++i) {
    sizes.note(0);
  }
  EXPECT_EQ(sizes.expected(), FetchSizes::kLeast);
}

}  // namespace
}  // namespace darkroom
