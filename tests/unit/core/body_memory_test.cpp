#include "darkroom/core/body_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using Answer = BodyMemory::Answer;

void enter_all(BodyMemory& memory, uint64_t num_pieces) {
  for (uint64_t order = 0; order < num_pieces; ++order) {
    memory.enter(order);
  }
}

// Asks and writes down in `grants` when it is granted later.
Answer ask(BodyMemory& memory, uint64_t order, size_t bytes, std::vector<uint64_t>& grants) {
  return memory.ask(order, bytes, [order, &grants] { grants.push_back(order); });
}

// Until a thread is seen waiting, or has got what it should wait for.
void await_asking(const BodyMemory& memory, const std::atomic<bool>& done) {
  while (memory.num_waiting() == 0 && !done) {
    std::this_thread::yield();
  }
}

TEST(BodyMemory, counts_what_is_held_until_it_leaves) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 2);
  EXPECT_EQ(ask(memory, 0, 30, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 0, 20, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 1, 50, grants), Answer::kGranted);
  EXPECT_EQ(memory.used_bytes(), 100u);
  EXPECT_EQ(memory.held_bytes(0), 50u);
  EXPECT_EQ(memory.num_inside(), 2u);
  memory.leave(0);
  EXPECT_EQ(memory.used_bytes(), 50u);
  memory.leave(1);
  EXPECT_EQ(memory.used_bytes(), 0u);
  EXPECT_EQ(memory.num_inside(), 0u);
  EXPECT_EQ(memory.oldest(), std::nullopt);
  EXPECT_EQ(memory.peak_bytes(), 100u);
  EXPECT_TRUE(grants.empty());
}

TEST(BodyMemory, what_does_not_fit_is_granted_once_when_room_is_made) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 3);
  ASSERT_EQ(ask(memory, 1, 100, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 2, 1, grants), Answer::kQueued);
  EXPECT_EQ(memory.num_waiting(), 1u);
  EXPECT_EQ(memory.held_bytes(2), 0u);
  memory.set_held(1, 99);
  EXPECT_EQ(grants, std::vector<uint64_t>{2});
  EXPECT_EQ(memory.num_waiting(), 0u);
  EXPECT_EQ(memory.held_bytes(2), 1u);
  memory.set_held(1, 0);
  EXPECT_EQ(grants.size(), 1u);
}

TEST(BodyMemory, grants_the_oldest_first_and_none_past_it) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 5);
  ASSERT_EQ(ask(memory, 1, 100, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 4, 5, grants), Answer::kQueued);
  EXPECT_EQ(ask(memory, 2, 60, grants), Answer::kQueued);
  EXPECT_EQ(ask(memory, 3, 5, grants), Answer::kQueued);
  memory.set_held(1, 50);
  EXPECT_TRUE(grants.empty()) << "a younger one that would fit waits for the oldest";
  memory.set_held(1, 35);
  EXPECT_EQ(grants, (std::vector<uint64_t>{2, 3}));
  memory.set_held(1, 30);
  EXPECT_EQ(grants, (std::vector<uint64_t>{2, 3, 4}));
}

TEST(BodyMemory, the_oldest_inside_gets_more_than_the_limit_and_nobody_else) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 3);
  ASSERT_EQ(ask(memory, 1, 100, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 2, 1, grants), Answer::kQueued);
  EXPECT_EQ(ask(memory, 0, 1000, grants), Answer::kGranted);
  EXPECT_EQ(memory.used_bytes(), 1100u);
  EXPECT_TRUE(grants.empty());
}

TEST(BodyMemory, the_right_of_the_oldest_passes_on_when_it_leaves) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 4);
  ASSERT_EQ(ask(memory, 0, 90, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 1, 500, grants), Answer::kQueued);
  EXPECT_EQ(ask(memory, 2, 500, grants), Answer::kQueued);
  memory.leave(0);
  EXPECT_EQ(grants, std::vector<uint64_t>{1});
  EXPECT_EQ(memory.used_bytes(), 500u);
  memory.leave(1);
  EXPECT_EQ(grants, (std::vector<uint64_t>{1, 2}));
}

// The oldest is over the limit and finished, but not yet written: the next one must not go over it, too.
TEST(BodyMemory, a_piece_that_is_finished_and_not_written_keeps_the_right_of_the_oldest) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 2);
  ASSERT_EQ(ask(memory, 0, 500, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 1, 500, grants), Answer::kQueued);
  memory.set_held(0, 450);
  EXPECT_TRUE(grants.empty());
  memory.leave(0);
  EXPECT_EQ(memory.peak_bytes(), 500u);
  EXPECT_EQ(grants, std::vector<uint64_t>{1});
}

TEST(BodyMemory, an_older_piece_that_enters_later_has_the_right) {
  BodyMemory memory(10);
  std::vector<uint64_t> grants;
  memory.enter(5);
  memory.enter(7);
  ASSERT_EQ(ask(memory, 7, 10, grants), Answer::kGranted);
  memory.enter(3);
  EXPECT_EQ(memory.oldest(), 3u);
  EXPECT_EQ(ask(memory, 5, 20, grants), Answer::kQueued);
  EXPECT_EQ(ask(memory, 3, 30, grants), Answer::kGranted);
  memory.leave(3);
  EXPECT_EQ(grants, std::vector<uint64_t>{5});
}

TEST(BodyMemory, the_limit_itself_fits_and_a_byte_more_does_not) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 3);
  EXPECT_EQ(ask(memory, 1, 101, grants), Answer::kQueued);
  EXPECT_TRUE(memory.withdraw(1));
  EXPECT_EQ(ask(memory, 1, 100, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 2, 0, grants), Answer::kGranted);
}

TEST(BodyMemory, no_size_wraps_around) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 3);
  ASSERT_EQ(ask(memory, 1, 60, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 2, SIZE_MAX, grants), Answer::kQueued);
  memory.leave(1);
  EXPECT_TRUE(grants.empty());
}

TEST(BodyMemory, a_withdrawn_question_is_never_answered_and_lets_the_next_pass) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 4);
  ASSERT_EQ(ask(memory, 1, 60, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 2, 80, grants), Answer::kQueued);
  EXPECT_EQ(ask(memory, 3, 40, grants), Answer::kQueued);
  EXPECT_TRUE(memory.withdraw(2));
  EXPECT_EQ(grants, std::vector<uint64_t>{3});
  EXPECT_FALSE(memory.withdraw(3)) << "it was granted";
  EXPECT_FALSE(memory.withdraw(2)) << "it was withdrawn";
  memory.leave(1);
  EXPECT_EQ(grants.size(), 1u);
  EXPECT_EQ(ask(memory, 2, 60, grants), Answer::kGranted) << "it may ask again";
}

TEST(BodyMemory, leaving_forgets_the_question) {
  BodyMemory memory(100);
  std::vector<uint64_t> grants;
  enter_all(memory, 3);
  ASSERT_EQ(ask(memory, 1, 100, grants), Answer::kGranted);
  EXPECT_EQ(ask(memory, 2, 1, grants), Answer::kQueued);
  memory.leave(2);
  memory.leave(1);
  EXPECT_TRUE(grants.empty());
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(BodyMemory, correcting_what_is_held_never_waits_even_over_the_limit) {
  BodyMemory memory(100);
  enter_all(memory, 2);
  memory.set_held(1, 500);
  EXPECT_EQ(memory.used_bytes(), 500u);
  EXPECT_EQ(memory.peak_bytes(), 500u);
  memory.set_held(1, 1);
  EXPECT_EQ(memory.used_bytes(), 1u);
}

TEST(BodyMemory, refuses_orders_that_are_not_inside_or_twice) {
  BodyMemory memory(1);
  std::vector<uint64_t> grants;
  memory.enter(4);
  memory.enter(6);
  EXPECT_THROW(memory.enter(4), CheckFailure);
  EXPECT_THROW(memory.leave(5), CheckFailure);
  EXPECT_THROW(memory.set_held(5, 1), CheckFailure);
  EXPECT_THROW((void)memory.held_bytes(5), CheckFailure);
  EXPECT_THROW(memory.withdraw(5), CheckFailure);
  EXPECT_THROW((void)ask(memory, 5, 1, grants), CheckFailure);
  ASSERT_EQ(ask(memory, 6, 2, grants), Answer::kQueued);
  EXPECT_THROW((void)ask(memory, 6, 2, grants), CheckFailure);
  EXPECT_EQ(memory.num_waiting(), 1u);
  EXPECT_EQ(memory.num_inside(), 2u);
}

TEST(BodyMemory, a_waiting_thread_goes_on_when_room_is_made) {
  BodyMemory memory(100);
  enter_all(memory, 3);
  ASSERT_TRUE(memory.wait_for(1, 100, {}));
  std::atomic<bool> entered = false;
  std::jthread second([&] { entered = memory.wait_for(2, 1, {}); });
  await_asking(memory, entered);
  EXPECT_FALSE(entered);
  memory.set_held(1, 99);
  second.join();
  EXPECT_TRUE(entered);
  EXPECT_EQ(memory.used_bytes(), 100u);
}

TEST(BodyMemory, a_stop_wakes_a_waiting_thread_and_forgets_its_question) {
  BodyMemory memory(1);
  enter_all(memory, 3);
  ASSERT_TRUE(memory.wait_for(1, 1, {}));
  std::stop_source stop;
  std::atomic<bool> refused = false;
  std::jthread waiting([&] { refused = !memory.wait_for(2, 1, stop.get_token()); });
  await_asking(memory, refused);
  EXPECT_FALSE(refused);
  stop.request_stop();
  waiting.join();
  EXPECT_TRUE(refused);
  EXPECT_EQ(memory.num_waiting(), 0u);
  memory.leave(1);
  EXPECT_EQ(memory.used_bytes(), 0u);
  EXPECT_FALSE(memory.wait_for(2, 1, stop.get_token())) << "a stop comes before room";
}

TEST(BodyMemory, a_lease_moves_with_its_piece_and_leaves_once) {
  BodyMemory memory(100);
  {
    BodyLease first(memory, 8);
    EXPECT_TRUE(first.is_inside());
    first.set_held(40);
    BodyLease second(std::move(first));
    EXPECT_FALSE(first.is_inside());  // NOLINT(bugprone-use-after-move)
    first.set_held(99);
    EXPECT_EQ(first.held_bytes(), 0u);
    EXPECT_EQ(second.held_bytes(), 40u);
    EXPECT_EQ(second.order(), 8u);
    BodyLease third(memory, 9);
    third.set_held(1);
    third = std::move(second);
    EXPECT_EQ(memory.used_bytes(), 40u) << "what was held before the assignment left";
    EXPECT_EQ(third.order(), 8u);
    third.leave();
    EXPECT_EQ(memory.num_inside(), 0u);
    third.leave();
  }
  EXPECT_EQ(memory.num_inside(), 0u);
}

// Any sequence of calls against what the header promises: the sum, the bound, the order of grants, and that the oldest never waits.
TEST(BodyMemory, any_sequence_keeps_its_promises) {
  constexpr size_t kLimit = 1000;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    BodyMemory memory(kLimit);
    std::map<uint64_t, size_t> held;
    std::map<uint64_t, size_t> asking;
    uint64_t next_order = 0;
    const auto pick = [&] { return std::next(held.begin(), static_cast<int64_t>(random() % held.size()))->first; };
    for (int step = 0; step < 300; ++step) {
      const uint32_t what = random() % 5;
      if (what == 0 || held.empty()) {
        memory.enter(next_order);
        held.emplace(next_order++, 0);
      } else if (const uint64_t order = pick(); what == 1 && !asking.contains(order)) {
        const size_t more = random() % (kLimit / 2);
        const auto granted = [&, order] {
          ASSERT_EQ(order, asking.begin()->first) << "not the oldest that asks, seed " << seed;
          held[order] += asking[order];
          asking.erase(order);
        };
        asking.emplace(order, more);
        if (memory.ask(order, more, granted) == Answer::kGranted) {
          granted();
        }
      } else if (what == 2) {
        // First what the test knows: the call itself may grant.
        held.erase(order);
        asking.erase(order);
        memory.leave(order);
      } else if (what == 3) {
        held[order] /= 2;
        memory.set_held(order, held[order]);
      } else if (asking.erase(order) == 1) {
        EXPECT_TRUE(memory.withdraw(order));
      }
      size_t sum = 0;
      for (const auto& [order, bytes] : held) {
        sum += bytes;
      }
      ASSERT_EQ(memory.used_bytes(), sum) << "seed " << seed;
      ASSERT_EQ(memory.num_waiting(), asking.size()) << "seed " << seed;
      if (!held.empty()) {
        ASSERT_LE(sum - held.begin()->second, kLimit) << "seed " << seed;
        ASSERT_FALSE(asking.contains(held.begin()->first)) << "the oldest waits, seed " << seed;
      }
      if (!asking.empty()) {
        ASSERT_GT(sum + asking.begin()->second, kLimit) << "the oldest question fits and waits, seed " << seed;
      }
    }
  }
}

TEST(BodyMemory, threads_that_want_more_than_there_is_all_finish) {
  constexpr uint64_t kThreads = 4, kPieces = 200;
  constexpr size_t kLimit = 100;
  BodyMemory memory(kLimit);
  std::atomic<uint64_t> next_order = 0;
  std::mutex entering;  // Orders enter ascending.
  {
    std::vector<std::jthread> threads;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        while (true) {
          BodyLease lease;
          {
            const std::lock_guard hold(entering);
            if (next_order == kPieces) {
              return;
            }
            lease = BodyLease(memory, next_order++);
          }
          for (int part = 0; part < 3; ++part) {
            ASSERT_TRUE(memory.wait_for(lease.order(), 30, {}));
          }
        }
      });
    }
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
  EXPECT_LE(memory.peak_bytes(), kLimit + 90);
}

}  // namespace
}  // namespace darkroom
