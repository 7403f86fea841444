#include "darkroom/stream/memory_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "darkroom/core/machine.h"

namespace darkroom {
namespace {

// Until a thread is seen waiting at the door, or has passed it.
void await_waiting_at(const MemoryBudget& budget, const std::atomic<bool>& has_passed) {
  while (budget.num_waiting() == 0 && !has_passed) {
    std::this_thread::yield();
  }
}

TEST(MemoryBudget, counts_what_is_leased_and_gives_it_back) {
  MemoryBudget budget(100);
  {
    auto lease = budget.acquire(60, {});
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(budget.used_bytes(), 60u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 60u);
}

TEST(MemoryBudget, lets_a_piece_larger_than_everything_enter_alone) {
  MemoryBudget budget(10);
  auto lease = budget.acquire(1000, {});
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(budget.used_bytes(), 1000u);
}

TEST(MemoryBudget, holds_back_what_does_not_fit_until_something_leaves) {
  MemoryBudget budget(100);
  auto first = budget.acquire(100, {});
  std::atomic<bool> entered = false;
  std::jthread second([&] {
    auto lease = budget.acquire(1, {});
    entered = lease.has_value();
  });
  await_waiting_at(budget, entered);
  EXPECT_FALSE(entered);
  first->release();
  second.join();
  EXPECT_TRUE(entered);
  EXPECT_EQ(budget.peak_bytes(), 100u);
}

TEST(MemoryBudget, resizing_never_waits_even_over_the_limit) {
  MemoryBudget budget(100);
  auto lease = budget.acquire(50, {});
  lease->resize(500);
  EXPECT_EQ(budget.used_bytes(), 500u);
  lease->resize(1);
  EXPECT_EQ(budget.used_bytes(), 1u);
}

TEST(MemoryBudget, a_stop_wakes_whoever_waits) {
  MemoryBudget budget(1);
  auto all = budget.acquire(1, {});
  std::stop_source stop;
  std::atomic<bool> refused = false;
  std::jthread waiting([&] { refused = !budget.acquire(1, stop.get_token()).has_value(); });
  await_waiting_at(budget, refused);
  EXPECT_FALSE(refused);
  stop.request_stop();
  waiting.join();
  EXPECT_TRUE(refused);
}

TEST(MemoryBudget, the_default_is_a_quarter_of_the_machine) {
  EXPECT_EQ(default_memory_budget_bytes(int64_t{8} << 30), size_t{2} << 30);
  EXPECT_EQ(default_memory_budget_bytes(7), 1u);
  EXPECT_EQ(default_memory_budget_bytes(), static_cast<size_t>(usable_memory_bytes()) / 4);
}

}  // namespace
}  // namespace darkroom
