#include "darkroom/files/folder_lock.h"

#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "support/forwarding_files.h"
#include "support/leap_clock.h"

namespace darkroom {
namespace {

constexpr const char* kHeld = "another process is at work here:";

class FilesWithoutLocks final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& /*path*/) override {
    return Status::failed_precondition("locks are not supported");
  }
};

TEST(folder_lock, is_held_by_one_and_the_other_is_told_why) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_folders("out").is_ok());
  auto lock = lock_folder(files, "out", kHeld);
  ASSERT_TRUE(lock.is_ok());
  ASSERT_NE(*lock, nullptr);
  const Status refused = lock_folder(files, "out", kHeld).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "another process is at work here: out");
  lock->reset();
  EXPECT_NE(lock_folder(files, "out", kHeld).value(), nullptr);
}

TEST(folder_lock, a_file_system_without_locks_is_worked_on_without_one) {
  MemoryFileSystem files;
  FilesWithoutLocks without_locks(files);
  const auto lock = lock_folder(without_locks, "out", kHeld);
  ASSERT_TRUE(lock.is_ok());
  EXPECT_EQ(*lock, nullptr);
}

/// Somebody holds the lock the first so many times.
class BusyFiles final : public ForwardingFiles {
 public:
  BusyFiles(FileSystem& files, int num_held) : ForwardingFiles(files), num_held_(num_held) {}
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    ++num_asked;
    return num_held_-- > 0 ? Result<std::unique_ptr<FileLock>>(nullptr) : ForwardingFiles::try_lock(path);
  }
  int num_asked = 0;

 private:
  int num_held_;
};

TEST(folder_lock, of_a_process_that_is_dying_is_waited_for) {
  MemoryFileSystem memory;
  ASSERT_TRUE(memory.create_folders("out").is_ok());
  LeapClock clock;
  BusyFiles files(memory, 7);
  EXPECT_TRUE(await_unlocked(files, "out", kHeld, std::chrono::seconds(1), {}, clock).is_ok());
  EXPECT_EQ(files.num_asked, 8);
  EXPECT_NE(lock_folder(memory, "out", kHeld).value(), nullptr);  // Nothing of the waiting stays.
}

TEST(folder_lock, of_a_process_that_lives_is_waited_for_so_long_and_no_longer) {
  MemoryFileSystem memory;
  ASSERT_TRUE(memory.create_folders("out").is_ok());
  const auto lock = lock_folder(memory, "out", kHeld);
  LeapClock clock;
  const auto begin = clock.now();
  EXPECT_EQ(await_unlocked(memory, "out", kHeld, std::chrono::seconds(1), {}, clock).message(), "another process is at work here: out");
  EXPECT_EQ(clock.now() - begin, std::chrono::seconds(1));
  std::stop_source source;
  source.request_stop();
  EXPECT_EQ(await_unlocked(memory, "out", kHeld, std::chrono::seconds(1), source.get_token(), clock).code(), StatusCode::kCancelled);
}

TEST(folder_lock, where_there_is_no_folder_or_no_lock_nobody_waits) {
  MemoryFileSystem files;
  LeapClock clock;
  EXPECT_TRUE(await_unlocked(files, "missing", kHeld, std::chrono::seconds(1), {}, clock).is_ok());
  FilesWithoutLocks without_locks(files);
  EXPECT_TRUE(await_unlocked(without_locks, "out", kHeld, std::chrono::seconds(1), {}, clock).is_ok());
}

TEST(folder_lock, another_failure_is_that_of_the_file_system) {
  MemoryFileSystem files;
  EXPECT_EQ(lock_folder(files, "missing", kHeld).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
