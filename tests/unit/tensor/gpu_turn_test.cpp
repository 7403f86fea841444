#include "darkroom/tensor/gpu_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

namespace darkroom {
namespace {

using std::chrono::milliseconds;

TEST(GpuTurn, one_works_at_a_time) {
  GpuTurn turn;
  std::atomic<int> num_at_work = 0, most_at_work = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int piece = 0; piece < 200; ++piece) {
          const std::lock_guard lock(turn);
          const int now = ++num_at_work;
          most_at_work = std::max(most_at_work.load(), now);
          std::this_thread::yield();
          --num_at_work;
        }
      });
    }
  }
  EXPECT_EQ(most_at_work, 1);
}

TEST(GpuTurn, who_takes_it_again_at_once_lets_those_who_wait_work_before) {
  constexpr size_t kPieces = 60;
  GpuTurn turn;
  std::vector<int> workers;  // Of the pieces, in their order; guarded by `turn`.
  std::latch both(2);
  const auto work = [&](int worker) {
    both.arrive_and_wait();
    for (bool is_over = false; !is_over;) {
      const std::lock_guard lock(turn);
      workers.push_back(worker);
      is_over = workers.size() >= kPieces;
      std::this_thread::sleep_for(milliseconds(1));  // The piece of work; nothing waits for its length.
    }
  };
  {
    std::jthread one([&] { work(1); }), other([&] { work(2); });
  }
  size_t num_changes = 0;
  for (size_t i = 1; i < workers.size(); ++i) {
    num_changes += workers[i] != workers[i - 1] ? 1 : 0;
  }
  // All but those at which a thread lost the processor before it had asked; a lock without an order changes hands a few times in all.
  EXPECT_GE(num_changes, kPieces / 2);
}

TEST(GpuTurn, who_waits_in_vain_gives_up_its_place) {
  GpuTurn turn;
  turn.lock();
  bool got_it = true;
  std::jthread([&] { got_it = turn.try_lock_for(milliseconds(5)); }).join();
  EXPECT_FALSE(got_it);
  turn.unlock();
  EXPECT_TRUE(turn.try_lock_for(milliseconds(0))) << "the place of who gave up is kept";
  turn.unlock();
}

}  // namespace
}  // namespace darkroom
