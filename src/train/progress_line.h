#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "darkroom/optim/train_step.h"

namespace darkroom {

/// Milliseconds of one step by phase, and what it gave.
struct StepTimes {
  StepReport report;
  double data_ms = 0;       ///< Waiting for the batch.
  double step_ms = 0;       ///< The whole step on the clock; more than its phases, which on a GPU leave out waits for room to send.
  bool is_skipped = false;  ///< A loss or the gradient was not finite: nothing was updated.
};

/// One line about the run: redrawn at most five times a second on a terminal, a log line every ten seconds otherwise.
/// Thread safety: one object, one thread.
class ProgressLine {
 public:
  ProgressLine(int64_t max_steps, int64_t batch_size) : max_steps_(max_steps), batch_size_(batch_size) {}
  /// Removes the line from the terminal.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `steps_done` includes the step of `times`.
  void show(int64_t steps_done, const StepTimes& times);

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(int64_t steps_done, const StepTimes& times) const;

  int64_t max_steps_;
  int64_t batch_size_;
  double mean_ms_ = 0;               // Exponential mean over about 20 steps.
  std::optional<double> mean_loss_;  // Until a step was looked at: none.
  double grad_norm_ = 0;             // The last one that is known.
  Clock::time_point last_shown_{};
};

}  // namespace darkroom
