#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"

namespace darkroom {

inline constexpr int kNumCrashSeeds = 40;

/// How many calls `work` makes that change something, when nothing fails.
inline int64_t count_calls(const std::function<void(FileSystem&)>& prepare, const std::function<Status(FileSystem&)>& work) {
  MemoryFileSystem memory;
  FaultInjectingFileSystem files(memory);
  prepare(files);
  files.heal();
  EXPECT_TRUE(work(files).is_ok());
  return files.num_calls();
}

/// Kills `work` at each of its calls, then takes away what was not synced, and hands both to `judge`.
inline void crash_everywhere(const std::function<void(FileSystem&)>& prepare, const std::function<Status(FileSystem&)>& work,
                             const std::function<void(FileSystem&, bool acknowledged)>& judge) {
  const int64_t num_calls = count_calls(prepare, work);
  ASSERT_GT(num_calls, 4);
  for (int64_t call = 0; call <= num_calls; ++call) {
    for (uint64_t seed = 0; seed < kNumCrashSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("call {} of {}, seed {}", call, num_calls, seed));
      MemoryFileSystem memory;
      prepare(memory);
      bool acknowledged = false;
      {
        FaultInjectingFileSystem files(memory);
        files.fail_call(call, Fault::kDeath);
        acknowledged = work(files).is_ok();
      }
      memory.crash(seed);
      judge(memory, acknowledged);
    }
  }
}

}  // namespace darkroom
