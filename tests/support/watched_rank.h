#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "darkroom/tensor/progress_mark.h"
#include "support/simulated_rank.h"

namespace darkroom {

/// A rank alone, of which a test sees what it does.
class WatchedRank {
 public:
  WatchedRank() { ranks.mark = &mark_; }

  /// What it has said last, as a watch of a rank that hangs hears it.
  std::string doing() {
    const std::lock_guard lock(mutex_);
    std::string found;
    for (int looks = 0; looks < 2; ++looks) {
      now_ += std::chrono::hours(1);
      if (const auto stall = mark_.look(now_, /*was_away=*/false)) {
        found = stall->doing;
      }
    }
    return found;
  }

  SilentRanks ranks{0, 1};

 private:
  ProgressMark mark_{std::chrono::minutes(1)};
  std::mutex mutex_;
  ProgressMark::Clock::time_point now_;
};

}  // namespace darkroom
