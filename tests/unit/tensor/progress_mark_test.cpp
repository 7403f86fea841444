#include "darkroom/tensor/progress_mark.h"

#include <gtest/gtest.h>

namespace darkroom {
namespace {

constexpr std::chrono::seconds kLimit(100);

// A watch that looks once a second, by a clock of its own.
class Watched {
 public:
  std::optional<ProgressMark::Stall> look_for(std::chrono::seconds time) {
    std::optional<ProgressMark::Stall> stall;
    for (const auto end = now_ + time; now_ < end && !stall;) {
      now_ += std::chrono::seconds(1);
      stall = mark.look(now_, /*was_away=*/false);
    }
    return stall;
  }
  std::optional<ProgressMark::Stall> look_after_being_away(std::chrono::seconds time) { return mark.look(now_ += time, /*was_away=*/true); }

  ProgressMark mark{kLimit};

 private:
  ProgressMark::Clock::time_point now_;
};

TEST(progress_mark, a_rank_that_gets_on_no_longer_is_seen_after_the_limit_with_what_it_did) {
  Watched rank;
  rank.mark.note("7 steps done, waiting for the next batch");
  EXPECT_FALSE(rank.look_for(kLimit + std::chrono::seconds(1))) << "the first look saw it get on";
  const auto stall = rank.look_for(std::chrono::seconds(1));
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->doing, "7 steps done, waiting for the next batch");
  EXPECT_EQ(stall->length, kLimit + std::chrono::seconds(1));
}

TEST(progress_mark, a_slow_step_that_gets_on_is_no_hang) {
  Watched rank;
  for (int part = 0; part < 10; ++part) {
    rank.mark.note("step 7, computes");
    EXPECT_FALSE(rank.look_for(kLimit)) << part;
  }
}

TEST(progress_mark, who_waits_for_others_may_wait_for_ever) {
  Watched rank;
  rank.mark.note("step 7");
  rank.mark.begin_wait();
  rank.mark.begin_wait();  // The thread that saves, too.
  rank.mark.end_wait();
  EXPECT_FALSE(rank.look_for(10 * kLimit));
  rank.mark.end_wait();
  EXPECT_FALSE(rank.look_for(kLimit)) << "the end of a wait is progress";
  EXPECT_TRUE(rank.look_for(std::chrono::seconds(2)));
}

TEST(progress_mark, nothing_is_expected_before_the_first_word_and_after_the_last) {
  Watched rank;
  EXPECT_FALSE(rank.look_for(10 * kLimit)) << "it sets itself up";
  rank.mark.note("step 1");
  rank.mark.note("");
  EXPECT_FALSE(rank.look_for(10 * kLimit));
}

TEST(progress_mark, time_in_which_the_watch_stood_still_too_does_not_count) {
  Watched rank;
  rank.mark.note("step 7");
  EXPECT_FALSE(rank.look_for(kLimit));
  EXPECT_FALSE(rank.look_after_being_away(10 * kLimit));
  EXPECT_FALSE(rank.look_for(kLimit));
  EXPECT_TRUE(rank.look_for(std::chrono::seconds(1)));
}

}  // namespace
}  // namespace darkroom
