#include "darkroom/tensor/gpu_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
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
  GpuTurn turn;
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> num_pieces = 0;
  std::jthread greedy([&] {
    while (!is_over) {
      const std::lock_guard lock(turn);
      ++num_pieces;
      std::this_thread::sleep_for(milliseconds(1));  // A piece of work; nothing waits for its length.
    }
  });
  while (num_pieces == 0) {
    std::this_thread::yield();
  }
  for (int time = 0; time < 20; ++time) {
    const int64_t before = num_pieces;
    const std::lock_guard lock(turn);
    // The piece under way, and those that were begun before this thread had asked: few, where a lock without an order lets by hundreds.
    EXPECT_LE(num_pieces - before, 20) << time;
  }
  is_over = true;
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
