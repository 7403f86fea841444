#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "darkroom/paint/sample_job.h"
#include "darkroom/stream/progress.h"

namespace darkroom {

/// Shows how many pictures are painted, of how many, while it lives.
class PaintingProgressLine {
 public:
  explicit PaintingProgressLine(std::string name) : reporter_(std::move(name), [this] { return state(); }) {}

  /// To be told by whoever paints, at first of what it finds painted; must not outlive the object.
  PaintingProgress teller() {
    return [this](int64_t num_painted, int64_t num_asked) {
      int64_t not_told = kNotTold;
      num_found_.compare_exchange_strong(not_told, num_painted);
      num_painted_ = num_painted;
      num_asked_ = num_asked;
    };
  }

 private:
  static constexpr int64_t kNotTold = -1;

  ProgressState state() const {
    return {.rows_done = num_painted_, .rows_total = num_asked_, .rows_before = std::max<int64_t>(num_found_, 0), .num_bytes = -1};
  }

  std::atomic<int64_t> num_found_ = kNotTold;
  std::atomic<int64_t> num_painted_ = 0;
  std::atomic<int64_t> num_asked_ = 0;
  ProgressReporter reporter_;
};

}  // namespace darkroom
