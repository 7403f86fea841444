#include "darkroom/core/planted.h"

#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace darkroom {
namespace {

// Destroyed after the report is written.
struct LastWords {
  ~LastWords() {
    if (is_planted("crash")) {
      std::abort();
    }
    if (is_planted("exit status")) {
      std::_Exit(5);
    }
  }
} last_words;

TEST(planted, a_value_is_what_it_should_be) { EXPECT_EQ(1, is_planted("failure") ? 2 : 1); }

TEST(planted, arithmetic_is_defined) {
  const volatile int large = is_planted("undefined behaviour") ? INT_MAX : 1;
  const volatile int larger = large + 1;
  EXPECT_NE(larger, large);
}

TEST(planted, what_is_taken_is_given_back) {
  auto* volatile taken = static_cast<char*>(std::malloc(16));
  ASSERT_NE(taken, nullptr);
  if (!is_planted("leak")) {
    std::free(taken);
  }
  taken = nullptr;
}

TEST(planted, memory_is_used_while_it_is_ours) {
  auto* volatile taken = new char[16];
  taken[3] = 1;
  EXPECT_EQ(taken[3], 1);
  delete[] taken;
  if (is_planted("memory error")) {
    EXPECT_NE(taken[3], 2);
  }
}

TEST(planted, dies_before_the_report) {
  if (is_planted("early death")) {
    std::_Exit(0);
  }
}

TEST(planted, ends) {
  if (is_planted("hang")) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

TEST(planted, takes_locks_in_one_order) {
  std::mutex first;
  std::mutex second;
  for (const bool is_turned : {false, is_planted("misuse of threads")}) {
    const std::lock_guard outer(is_turned ? second : first);
    const std::lock_guard inner(is_turned ? first : second);
  }
}

TEST(planted, skips_with_a_reason) {
  if (is_planted("skip")) {
    GTEST_SKIP() << "this machine lacks a thing";
  }
}

TEST(planted, skips_silently) {
  if (is_planted("silent skip")) {
    GTEST_SKIP();
  }
}

}  // namespace
}  // namespace darkroom
