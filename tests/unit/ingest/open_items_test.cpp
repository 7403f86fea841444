#include "darkroom/ingest/open_items.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace darkroom {
namespace {

// Takes what there is to do until nothing is, and says it: "0:a 0:b 0! 1:c" (! the end of an item).
std::string do_all(OpenItems<std::string>& items) {
  std::string done;
  while (auto turn = items.take()) {
    done += (done.empty() ? "" : " ") + std::to_string(turn->item) + (turn->piece ? ":" + *turn->piece : "!");
    if (turn->piece) {
      items.end_turn(turn->item);
    } else {
      items.close(turn->item);
    }
  }
  return done;
}

TEST(OpenItems, pieces_leave_in_order_whatever_order_they_come_in) {
  OpenItems<std::string> items(4, 4);
  const uint64_t item = items.open();
  items.arrive(item, 2, "c");
  items.arrive(item, 1, "b");
  EXPECT_EQ(do_all(items), "");
  EXPECT_EQ(items.num_waiting(), 2u);
  items.arrive(item, 0, "a");
  EXPECT_EQ(do_all(items), "0:a 0:b 0:c");
  EXPECT_EQ(items.num_waiting(), 0u);
  items.end(item, 4);
  EXPECT_EQ(do_all(items), "");
  items.arrive(item, 3, "d");
  EXPECT_EQ(do_all(items), "0:d 0!");
  EXPECT_EQ(items.num_open(), 0u);
  EXPECT_EQ(items.num_started(), 0u);
}

TEST(OpenItems, an_item_without_pieces_is_finished) {
  OpenItems<std::string> items(1, 1);
  items.end(items.open(), 0);
  EXPECT_EQ(do_all(items), "0!");
}

TEST(OpenItems, an_item_may_end_after_its_last_piece_was_written) {
  OpenItems<std::string> items(1, 1);
  const uint64_t item = items.open();
  items.arrive(item, 0, "a");
  EXPECT_EQ(do_all(items), "0:a");
  items.end(item, 1);
  EXPECT_EQ(do_all(items), "0!");
}

TEST(OpenItems, a_slow_piece_holds_up_its_own_item_only) {
  OpenItems<std::string> items(3, 3);
  items.open();
  const uint64_t second = items.open();
  items.arrive(0, 1, "later");
  items.arrive(second, 0, "x");
  items.end(second, 1);
  EXPECT_EQ(do_all(items), "1:x 1!");
  items.arrive(0, 0, "slow");
  EXPECT_EQ(do_all(items), "0:slow 0:later");
}

TEST(OpenItems, the_oldest_goes_first) {
  OpenItems<std::string> items(3, 3);
  items.open();
  items.open();
  items.arrive(1, 0, "b");
  items.arrive(0, 0, "a");
  EXPECT_EQ(do_all(items), "0:a 1:b");
}

TEST(OpenItems, an_item_in_a_turn_is_nobody_elses) {
  OpenItems<std::string> items(2, 2);
  items.open();
  items.arrive(0, 0, "a");
  items.arrive(0, 1, "b");
  const auto turn = items.take();
  ASSERT_TRUE(turn.has_value());
  EXPECT_TRUE(turn->is_first);
  EXPECT_FALSE(items.has_turn());
  items.arrive(0, 2, "c");
  items.end(0, 3);
  EXPECT_FALSE(items.has_turn()) << "what comes meanwhile waits for the turn's end";
  items.end_turn(0);
  const auto next = items.take();
  ASSERT_TRUE(next.has_value());
  EXPECT_FALSE(next->is_first);
  EXPECT_EQ(next->piece, "b");
}

TEST(OpenItems, one_start_is_kept_for_the_oldest) {
  OpenItems<std::string> items(4, 2);
  for (int i = 0; i < 4; ++i) {
    items.open();
  }
  items.arrive(1, 0, "b");
  items.arrive(2, 0, "c");
  EXPECT_EQ(do_all(items), "1:b") << "the third would take the start of the oldest";
  EXPECT_TRUE(items.would_wait(2, 1));
  EXPECT_FALSE(items.would_wait(0, 0));
  items.arrive(0, 0, "a");
  EXPECT_EQ(do_all(items), "0:a");
  EXPECT_EQ(items.num_started(), 2u);
  items.end(0, 1);
  EXPECT_EQ(do_all(items), "0! 2:c");
  items.arrive(3, 0, "d");
  EXPECT_EQ(do_all(items), "");
  items.end(1, 1);
  EXPECT_EQ(do_all(items), "1! 3:d") << "the oldest is started, so its start is not kept";
}

TEST(OpenItems, with_one_start_only_the_oldest_is_started) {
  OpenItems<std::string> items(2, 1);
  items.open();
  items.open();
  items.arrive(1, 0, "b");
  EXPECT_EQ(do_all(items), "");
  items.end(0, 0);
  EXPECT_EQ(do_all(items), "0! 1:b");
}

TEST(OpenItems, tells_who_would_wait_for_a_piece_before_it) {
  OpenItems<std::string> items(1, 1);
  items.open();
  EXPECT_FALSE(items.would_wait(0, 0));
  EXPECT_TRUE(items.would_wait(0, 1));
  items.arrive(0, 1, "b");
  EXPECT_TRUE(items.would_wait(0, 2));
  items.arrive(0, 0, "a");
  EXPECT_FALSE(items.would_wait(0, 2)) << "all before it are there";
  EXPECT_TRUE(items.would_wait(0, 3));
}

TEST(OpenItems, opens_as_many_as_asked_for) {
  OpenItems<std::string> items(2, 1);
  items.open();
  EXPECT_TRUE(items.has_room());
  items.open();
  EXPECT_FALSE(items.has_room());
  EXPECT_THROW(items.open(), CheckFailure);
  items.end(0, 0);
  EXPECT_EQ(do_all(items), "0!");
  EXPECT_TRUE(items.has_room());
  EXPECT_EQ(items.open(), 2u) << "numbers are not used again";
}

TEST(OpenItems, names_the_first_piece_that_never_came) {
  OpenItems<std::string> items(2, 2);
  EXPECT_EQ(items.first_cut(), std::nullopt);
  items.open();
  items.end(0, 1);
  items.open();
  items.end(1, 3);
  items.arrive(0, 0, "a");
  items.arrive(1, 0, "b");
  items.arrive(1, 2, "d");
  EXPECT_EQ(items.first_cut(), std::pair(uint64_t{1}, int64_t{1}));
  items.arrive(1, 1, "c");
  EXPECT_EQ(items.first_cut(), std::nullopt);
}

TEST(OpenItems, refuses_what_cannot_be) {
  OpenItems<std::string> items(2, 1);
  items.open();
  items.arrive(0, 1, "b");
  EXPECT_THROW(items.arrive(0, 1, "b again"), CheckFailure);
  EXPECT_THROW(items.arrive(1, 0, "of no item"), CheckFailure);
  EXPECT_THROW(items.end(0, 1), CheckFailure) << "a piece beyond the end is there";
  EXPECT_THROW(items.end_turn(0), CheckFailure);
  EXPECT_THROW(items.close(0), CheckFailure);
  items.end(0, 2);
  EXPECT_THROW(items.end(0, 2), CheckFailure);
  EXPECT_THROW(items.arrive(0, 2, "beyond the end"), CheckFailure);
  items.arrive(0, 0, "a");
  EXPECT_EQ(do_all(items), "0:a 0:b 0!");
  EXPECT_THROW(items.arrive(0, 0, "of a closed item"), CheckFailure);
  EXPECT_THROW((OpenItems<std::string>(0, 1)), CheckFailure);
  EXPECT_THROW((OpenItems<std::string>(1, 0)), CheckFailure);
}

TEST(OpenItems, carries_pieces_that_cannot_be_copied) {
  OpenItems<std::unique_ptr<int>> items(1, 1);
  items.arrive(items.open(), 0, std::make_unique<int>(5));
  EXPECT_EQ(**items.take()->piece, 5);
}

}  // namespace
}  // namespace darkroom
