#pragma once

#include <atomic>
#include <cstdint>

#include "darkroom/paint/sample_job.h"
#include "darkroom/stream/progress.h"

namespace darkroom {

/// Shows how many pictures are painted, of how many, while it lives.
class PaintingProgressLine {
 public:
  /// To be told by whoever paints; must not outlive the object.
  PaintingProgress teller() {
    return [this](int64_t num_painted, int64_t num_asked) {
      num_painted_ = num_painted;
      num_asked_ = num_asked;
    };
  }

 private:
  std::atomic<int64_t> num_painted_ = 0;
  std::atomic<int64_t> num_asked_ = 0;
  ProgressReporter reporter_{"sample",
                             [this] { return ProgressState{.rows_done = num_painted_, .rows_total = num_asked_, .num_bytes = -1}; }};
};

}  // namespace darkroom
