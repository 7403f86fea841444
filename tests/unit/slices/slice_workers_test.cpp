#include "slices/slice_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slice_talk.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Where a worker's frames go: the first `num_failures` find no memory.
class Answers {
 public:
  explicit Answers(int num_failures) : num_failures_(num_failures) {}

  void take(std::string frame) {
    const std::lock_guard lock(mutex_);
    if (num_failures_-- > 0) {
      throw std::bad_alloc();
    }
    frames_.push_back(std::move(frame));
    changed_.notify_all();
  }
  std::vector<std::string> await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return frames_.size() >= count; });
    return frames_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_failures_;
  std::vector<std::string> frames_;
};

TEST(SliceWorkers, what_finds_no_memory_on_its_way_out_is_told_and_the_worker_goes_on) {
  Answers answers(1);
  SliceWorkers workers(
      1, rows_as_text, [&](uint64_t, std::string frame) { answers.take(std::move(frame)); }, [] {});
  workers.add({.connection = 1, .slice = 7, .rows = {1, 2}});
  workers.add({.connection = 1, .slice = 8, .rows = {3}});
  const std::vector<std::string> frames = answers.await(2);
  EXPECT_THAT(frames[0], HasSubstr("could not be sent"));
  EXPECT_THAT(frames[1], HasSubstr("3;"));
}

TEST(SliceWorkers, memory_that_is_used_up_by_a_slice_is_told_as_such) {
  Answers answers(0);
  SliceWorkers workers(
      1, [](int, std::span<const int64_t>) -> Result<std::string> { throw std::bad_alloc(); },
      [&](uint64_t, std::string frame) { answers.take(std::move(frame)); }, [] {});
  workers.add({.connection = 1, .slice = 7, .rows = {1, 2}});
  EXPECT_THAT(answers.await(1)[0], AllOf(HasSubstr("resource_exhausted"), HasSubstr("out of memory; what was committed is safe")));
}

TEST(SliceWorkers, one_that_cannot_even_tell_it_goes_on) {
  Answers answers(2);
  SliceWorkers workers(
      1, rows_as_text, [&](uint64_t, std::string frame) { answers.take(std::move(frame)); }, [] {});
  workers.add({.connection = 1, .slice = 7, .rows = {1, 2}});
  workers.add({.connection = 1, .slice = 8, .rows = {3}});
  EXPECT_THAT(answers.await(1)[0], HasSubstr("3;"));
}

}  // namespace
}  // namespace darkroom
