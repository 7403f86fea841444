#include "darkroom/stream/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace darkroom {
namespace {

// Until a thread is seen waiting in it, or has done what it should wait for.
template <typename T, typename Done>
void await_waiting_in(const BoundedQueue<T>& queue, const std::atomic<Done>& done) {
  while (queue.num_waiting() == 0 && !done) {
    std::this_thread::yield();
  }
}

TEST(BoundedQueue, keeps_order) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(queue.push(i, {}));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.pop({}), i);
  }
}

TEST(BoundedQueue, refuses_zero_capacity) { EXPECT_THROW(BoundedQueue<int>(0), CheckFailure); }

TEST(BoundedQueue, a_full_queue_waits_for_a_consumer) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.push(1, {}));
  std::atomic<bool> pushed = false;
  std::jthread producer([&] { pushed = queue.push(2, {}); });
  await_waiting_in(queue, pushed);
  EXPECT_FALSE(pushed);
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(queue.pop({}), 1);
  EXPECT_EQ(queue.pop({}), 2);
  producer.join();
  EXPECT_TRUE(pushed);
}

TEST(BoundedQueue, drains_after_the_last_producer_ends) {
  BoundedQueue<int> queue(4);
  queue.add_producer();
  queue.add_producer();
  ASSERT_TRUE(queue.push(7, {}));
  queue.producer_done();
  ASSERT_TRUE(queue.push(8, {}));
  queue.producer_done();
  EXPECT_FALSE(queue.push(9, {}));
  EXPECT_EQ(queue.pop({}), 7);
  EXPECT_EQ(queue.pop({}), 8);
  EXPECT_EQ(queue.pop({}), std::nullopt);
}

TEST(BoundedQueue, a_stop_wakes_producers_and_consumers) {
  BoundedQueue<int> full(1);
  BoundedQueue<int> empty(1);
  ASSERT_TRUE(full.push(1, {}));
  std::stop_source stop;
  std::atomic<int> woken = 0;
  {
    std::jthread producer([&] { woken += full.push(2, stop.get_token()) ? 0 : 1; });
    std::jthread consumer([&] { woken += empty.pop(stop.get_token()).has_value() ? 0 : 1; });
    await_waiting_in(full, woken);
    await_waiting_in(empty, woken);
    EXPECT_EQ(woken, 0);
    stop.request_stop();
  }
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(full.num_waiting() + empty.num_waiting(), 0u);
}

TEST(BoundedQueue, takes_and_gives_nothing_after_a_stop) {
  BoundedQueue<int> queue(2);
  ASSERT_TRUE(queue.push(1, {}));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(queue.push(2, stop.get_token()));
  EXPECT_EQ(queue.pop(stop.get_token()), std::nullopt);
  EXPECT_EQ(queue.size(), 1u);
}

TEST(BoundedQueue, carries_values_that_cannot_be_copied) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.push(std::make_unique<int>(5), {}));
  EXPECT_EQ(**queue.pop({}), 5);
}

}  // namespace
}  // namespace darkroom
