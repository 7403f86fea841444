#include "darkroom/files/counter.h"

#include <gtest/gtest.h>

#include <thread>

namespace darkroom {
namespace {

TEST(counter, counts_what_two_threads_add) {
  Counter counter;
  std::thread other([&] { counter.add(); });
  counter.add();
  other.join();
  EXPECT_GE(counter.value(), 1);
}

}  // namespace
}  // namespace darkroom
