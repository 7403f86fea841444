#include "progress_line.h"

#include <fmt/format.h>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr double kMeanShare = 0.05;
constexpr auto kTerminalInterval = std::chrono::milliseconds(200);
constexpr auto kLogInterval = std::chrono::seconds(10);

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressLine::~ProgressLine() { show_progress(""); }

void ProgressLine::show(int64_t steps_done, const StepTimes& times) {
  const bool is_first = mean_ms_ == 0;
  mean_ms_ += (is_first ? 1.0 : kMeanShare) * (times.total_ms() - mean_ms_);
  mean_loss_ += (is_first ? 1.0 : kMeanShare) * (times.report.loss - mean_loss_);
  const auto now = Clock::now();
  const bool on_terminal = stderr_is_terminal();
  if (now - last_shown_ < (on_terminal ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval)) && steps_done < max_steps_) {
    return;
  }
  last_shown_ = now;
  if (on_terminal) {
    show_progress(text(steps_done, times));
  } else {
    log_info("{}", text(steps_done, times));
  }
}

std::string ProgressLine::text(int64_t steps_done, const StepTimes& times) const {
  const StepReport& report = times.report;
  return fmt::format(
      "train step {}/{}  loss {:.4f}  grad {:.3f}  lr {:.2e}  {:.0f} img/s  ms: data {:.0f} fwd {:.0f} bwd {:.0f} opt {:.0f}  ETA {}",
      steps_done, max_steps_, mean_loss_, report.grad_norm, report.learning_rate, 1000.0 * static_cast<double>(batch_size_) / mean_ms_,
      times.data_ms, report.forward_ms, report.backward_ms, report.update_ms,
      clock_text(static_cast<double>(max_steps_ - steps_done) * mean_ms_ / 1000.0));
}

}  // namespace darkroom
