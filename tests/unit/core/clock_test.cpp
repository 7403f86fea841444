#include "darkroom/core/clock.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

/// What a thread waits for: a flag under a lock.
struct Flag {
  std::mutex mutex;
  std::condition_variable_any cv;
  bool is_set = false;

  bool await(Clock& clock, Clock::Instant until, std::stop_token stop = {}) {
    std::unique_lock lock(mutex);
    return clock.wait_until(lock, cv, std::move(stop), until, [this] { return is_set; });
  }
  void set() {
    {
      const std::lock_guard lock(mutex);
      is_set = true;
    }
    cv.notify_all();
  }
};

TEST(FakeClock, moves_only_when_told) {
  FakeClock clock;
  const auto now = clock.now();
  const auto wall = clock.wall();
  EXPECT_EQ(clock.now(), now);
  EXPECT_EQ(clock.wall(), wall);
  clock.advance(milliseconds(1500));
  EXPECT_EQ(clock.now() - now, milliseconds(1500));
  EXPECT_EQ(clock.wall() - wall, milliseconds(1500));
  clock.advance(nanoseconds(0));
  EXPECT_EQ(clock.now() - now, milliseconds(1500));
}

TEST(FakeClock, a_corrected_date_moves_no_deadline) {
  FakeClock clock;
  const auto now = clock.now();
  clock.set_wall(clock.wall() - std::chrono::hours(5));
  EXPECT_EQ(clock.wall(), FakeClock().wall() - std::chrono::hours(5));
  EXPECT_EQ(clock.now(), now);
}

TEST(FakeClock, does_not_go_back) {
  FakeClock clock;
  const auto now = clock.now();
  EXPECT_THROW(clock.advance(nanoseconds(-1)), CheckFailure);
  EXPECT_EQ(clock.now(), now);
}

TEST(FakeClock, wakes_exactly_the_due) {
  FakeClock clock;
  const auto start = clock.now();
  std::array<std::atomic<bool>, 3> has_ended{};
  std::array<std::jthread, 3> sleepers;
  for (size_t i = 0; i < sleepers.size(); ++i) {
    sleepers[i] = std::jthread([&, i](std::stop_token stop) {
      clock.sleep_until(start + seconds(i + 1), stop);
      has_ended[i] = true;
    });
  }
  ASSERT_TRUE(clock.await_waiting(3));
  EXPECT_EQ(clock.advance(milliseconds(999)), 0U);
  EXPECT_EQ(clock.num_waiting(), 3U);
  EXPECT_EQ(clock.advance(milliseconds(1)), 1U);
  sleepers[0].join();
  EXPECT_EQ(clock.num_waiting(), 2U);
  EXPECT_FALSE(has_ended[1] || has_ended[2]);
  EXPECT_EQ(clock.advance(seconds(5)), 2U);
  EXPECT_EQ(clock.num_waiting(), 0U);
  sleepers[1].join();
  sleepers[2].join();
}

TEST(FakeClock, of_two_that_share_a_condition_only_the_due_one_returns) {
  FakeClock clock;
  const auto start = clock.now();
  Flag flag;
  std::atomic<bool> late_ended = false;
  std::jthread late([&](std::stop_token stop) {
    flag.await(clock, start + seconds(2), stop);
    late_ended = true;
  });
  std::jthread early([&](std::stop_token stop) { flag.await(clock, start + seconds(1), stop); });
  ASSERT_TRUE(clock.await_waiting(2));
  EXPECT_EQ(clock.advance(seconds(1)), 1U);
  early.join();
  EXPECT_EQ(clock.num_waiting(), 1U);
  EXPECT_FALSE(late_ended);
  clock.advance(seconds(1));
}

TEST(FakeClock, a_condition_ends_a_wait_before_its_instant) {
  FakeClock clock;
  const auto start = clock.now();
  Flag flag;
  std::atomic<bool> result = false;
  std::jthread waiter([&](std::stop_token stop) { result = flag.await(clock, Clock::Instant::max(), stop); });
  ASSERT_TRUE(clock.await_waiting(1));
  flag.set();
  waiter.join();
  EXPECT_TRUE(result);
  EXPECT_EQ(clock.now(), start);
  EXPECT_EQ(clock.num_waiting(), 0U);
  EXPECT_EQ(clock.advance(seconds(1)), 0U);
}

TEST(FakeClock, a_condition_that_is_true_when_its_instant_comes_counts) {
  FakeClock clock;
  Flag flag;
  std::atomic<bool> result = false;
  std::jthread waiter([&](std::stop_token stop) { result = flag.await(clock, clock.now() + seconds(1), stop); });
  ASSERT_TRUE(clock.await_waiting(1));
  {
    const std::lock_guard lock(flag.mutex);
    flag.is_set = true;  // Nobody says so: only the time wakes.
  }
  clock.advance(seconds(1));
  waiter.join();
  EXPECT_TRUE(result);
}

TEST(FakeClock, a_stop_ends_a_wait) {
  FakeClock clock;
  std::stop_source stop;
  Flag flag;
  std::atomic<int> num_refused = 0;
  std::jthread waiter([&] { num_refused += flag.await(clock, Clock::Instant::max(), stop.get_token()) ? 0 : 1; });
  std::jthread sleeper([&] { num_refused += clock.sleep_until(Clock::Instant::max(), stop.get_token()) ? 0 : 1; });
  ASSERT_TRUE(clock.await_waiting(2));
  stop.request_stop();
  waiter.join();
  sleeper.join();
  EXPECT_EQ(num_refused, 2);
  EXPECT_EQ(clock.num_waiting(), 0U);
}

TEST(FakeClock, what_is_so_already_needs_no_wait) {
  FakeClock clock;
  std::stop_source stop;
  stop.request_stop();
  Flag unset;
  Flag set;
  set.set();
  EXPECT_FALSE(unset.await(clock, clock.now()));
  EXPECT_FALSE(unset.await(clock, Clock::Instant::min()));
  EXPECT_FALSE(unset.await(clock, Clock::Instant::max(), stop.get_token()));
  EXPECT_TRUE(set.await(clock, clock.now()));
  EXPECT_TRUE(set.await(clock, Clock::Instant::max(), stop.get_token()));
  EXPECT_TRUE(clock.sleep_until(clock.now(), {}));
  EXPECT_FALSE(clock.sleep_until(Clock::Instant::max(), stop.get_token()));
  EXPECT_EQ(clock.num_waiting(), 0U);
}

TEST(FakeClock, a_condition_may_ask_for_the_time) {
  FakeClock clock;
  const auto due = clock.now() + seconds(3);
  std::mutex mutex;
  std::condition_variable_any cv;
  std::atomic<bool> result = false;
  std::jthread waiter([&](std::stop_token stop) {
    std::unique_lock lock(mutex);
    result = clock.wait_until(lock, cv, stop, due, [&] { return clock.now() >= due; });
  });
  ASSERT_TRUE(clock.await_waiting(1));
  clock.advance(seconds(3));
  waiter.join();
  EXPECT_TRUE(result);
}

TEST(FakeClock, a_condition_that_throws_leaves_nobody_behind) {
  FakeClock clock;
  std::mutex mutex;
  std::condition_variable_any cv;
  std::atomic<bool> was_locked = false;
  std::jthread waiter([&](std::stop_token stop) {
    std::unique_lock lock(mutex);
    int num_calls = 0;
    const auto pred = [&]() -> bool { return ++num_calls == 1 ? false : throw std::runtime_error("broken"); };
    try {
      clock.wait_until(lock, cv, stop, Clock::Instant::max(), pred);
    } catch (const std::runtime_error&) {
      was_locked = lock.owns_lock();
    }
  });
  ASSERT_TRUE(clock.await_waiting(1));
  cv.notify_all();
  waiter.join();
  EXPECT_TRUE(was_locked);
  EXPECT_EQ(clock.num_waiting(), 0U);
  EXPECT_EQ(clock.advance(seconds(1)), 0U);
}

TEST(FakeClock, says_when_fewer_wait_than_expected) {
  FakeClock clock;
  EXPECT_TRUE(clock.await_waiting(0, seconds(0)));
  EXPECT_FALSE(clock.await_waiting(1, seconds(0)));
}

// Each round has a lock and a condition of its own, which are gone at its end: a clock that still knew them would touch freed memory, and
// one that lost a wake-up would leave a round waiting for ever.
TEST(FakeClock, time_may_pass_while_waiters_leave) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  FakeClock clock;
  std::atomic<int> num_running = kThreads;
  std::atomic<int> num_wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        const CounterRandom random(thread, Purpose::kSelect, 0, "clock");
        for (int round = 0; round < kRounds; ++round) {
          Flag flag;
          std::stop_source stop;
          const uint32_t choice = random.below(round, 3);  // By the time alone, or against a condition, or against a stop.
          const auto until = clock.now() + nanoseconds(1 + random.below(round + kRounds, 50));
          std::jthread other([&] { choice == 1 ? flag.set() : choice == 2 ? void(stop.request_stop()) : void(); });
          const bool result = flag.await(clock, until, stop.get_token());
          num_wrong += !result && !stop.stop_requested() && clock.now() < until ? 1 : 0;
        }
        --num_running;
      });
    }
    while (num_running > 0) {
      clock.advance(nanoseconds(1));
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(clock.num_waiting(), 0U);
}

TEST(SystemClock, reads_the_machines_clocks) {
  const auto before = std::chrono::steady_clock::now();
  const auto now = system_clock().now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
  EXPECT_LT(std::chrono::abs(system_clock().wall() - std::chrono::system_clock::now()), std::chrono::minutes(1));
}

TEST(SystemClock, a_wait_ends_by_its_condition_a_stop_or_the_time) {
  Clock& clock = system_clock();
  Flag flag;
  const auto soon = clock.now() + milliseconds(1);
  EXPECT_FALSE(flag.await(clock, soon));
  EXPECT_GE(clock.now(), soon);
  EXPECT_FALSE(flag.await(clock, Clock::Instant::min()));
  EXPECT_TRUE(clock.sleep_until(clock.now() + milliseconds(1), {}));
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_FALSE(flag.await(clock, Clock::Instant::max(), stop.get_token()));
  EXPECT_FALSE(clock.sleep_until(Clock::Instant::max(), stop.get_token()));
  std::jthread setter([&] { flag.set(); });
  EXPECT_TRUE(flag.await(clock, Clock::Instant::max()));
}

}  // namespace
}  // namespace darkroom
