#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/optim/train_step.h"

namespace darkroom {

/// Milliseconds of one step by phase, and what it gave.
struct StepTimes {
  StepReport report;
  std::vector<PhaseTimes>
      phases;               ///< Of the steps whose times are known by now: of a GPU this one and those before that ran ahead, or none.
  double data_ms = 0;       ///< Waiting for the batch.
  double step_ms = 0;       ///< The whole step on the host's clock; on a GPU the phases of several steps add up to theirs.
  bool is_skipped = false;  ///< A loss or the gradient was not finite: nothing was updated.
};

/// What a step computes, and what the ranks could at most.
struct StepWork {
  double flop = 0;         ///< Floating-point operations of all ranks; 0: not known.
  double peak_tflops = 0;  ///< Of all ranks, in 10^12 of them per second; 0: not known.

  /// Of all ranks in a step that takes so long, in 10^12 per second; nothing where the operations are not known.
  std::optional<double> tflops(double step_ms) const;
  /// Share of the peak that this is; nothing where either is not known.
  std::optional<double> mfu(double step_ms) const;
};

/// One line about the run: redrawn at most five times a second on a terminal, a log line every ten seconds otherwise.
/// Thread safety: one object, one thread.
class ProgressLine {
 public:
  ProgressLine(int64_t max_steps, int64_t batch_size, const StepWork& work = {})
      : max_steps_(max_steps), batch_size_(batch_size), work_(work) {}
  /// Removes the line from the terminal.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `steps_done` includes the step of `times`.
  void show(int64_t steps_done, const StepTimes& times);
  /// The line itself, of the steps that were shown.
  std::string text(int64_t steps_done, const StepTimes& times) const;

 private:
  using Clock = std::chrono::steady_clock;

  int64_t max_steps_;
  int64_t batch_size_;
  StepWork work_;
  double mean_ms_ = 0;               // Exponential mean over about 20 steps.
  std::optional<double> mean_loss_;  // Until a step was looked at: none.
  double grad_norm_ = 0;             // The last one that is known.
  PhaseTimes phases_;                // Likewise.
  Clock::time_point last_shown_{};
};

}  // namespace darkroom
