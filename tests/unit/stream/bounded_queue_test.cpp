#include "darkroom/stream/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace darkroom {
namespace {

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
  EXPECT_LE(queue.size(), 1u);
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
    stop.request_stop();
  }
  EXPECT_EQ(woken, 2);
}

TEST(BoundedQueue, carries_values_that_cannot_be_copied) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.push(std::make_unique<int>(5), {}));
  EXPECT_EQ(**queue.pop({}), 5);
}

}  // namespace
}  // namespace darkroom
