#include "progress_line.h"

#include <fmt/format.h>

#include "darkroom/core/log.h"
#include "darkroom/stream/progress.h"

namespace darkroom {
namespace {

constexpr double kMeanShare = 0.05;
constexpr auto kTerminalInterval = std::chrono::milliseconds(200);
constexpr auto kLogInterval = std::chrono::seconds(10);

}  // namespace

std::optional<double> StepWork::tflops(double step_ms) const {
  return flop > 0 && step_ms > 0 ? std::optional(flop / (1e9 * step_ms)) : std::nullopt;
}

std::optional<double> StepWork::mfu(double step_ms) const {
  const auto reached = tflops(step_ms);
  return reached && peak_tflops > 0 ? std::optional(*reached / peak_tflops) : std::nullopt;
}

ProgressLine::~ProgressLine() { show_progress(""); }

void ProgressLine::show(int64_t steps_done, const StepTimes& times) {
  mean_ms_ += (mean_ms_ == 0 ? 1.0 : kMeanShare) * (times.step_ms - mean_ms_);
  if (!times.is_skipped && !times.report.is_ahead) {
    grad_norm_ = times.report.grad_norm;
    mean_loss_ = mean_loss_.has_value() ? *mean_loss_ + kMeanShare * (times.report.loss - *mean_loss_) : times.report.loss;
  }
  phases_ = times.phases.empty() ? phases_ : times.phases.back();
  const auto now = Clock::now();
  const bool on_terminal = stderr_is_terminal();
  if (now - last_shown_ < (on_terminal ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval)) && steps_done < max_steps_) {
    return;
  }
  last_shown_ = now;
  if (on_terminal) {
    const double share = static_cast<double>(steps_done) / static_cast<double>(max_steps_);
    show_progress("train " + terminal_bar(share) + text(steps_done, times));
  } else {
    log_info("train {}", text(steps_done, times));
  }
}

std::string ProgressLine::text(int64_t steps_done, const StepTimes& times) const {
  constexpr double kPercent = 100, kShownMs = 0.5;
  const StepReport& report = times.report;
  const auto tflops = work_.tflops(mean_ms_), mfu = work_.mfu(mean_ms_);
  const std::string reached = tflops ? fmt::format("  {:.3g} TFLOP/s", *tflops) : "";
  const std::string share = mfu ? fmt::format(" ({:.3g} %)", kPercent * *mfu) : "";
  const std::string wait = report.wait_ms >= kShownMs ? fmt::format(" wait {:.0f}", report.wait_ms) : "";
  return fmt::format(
      "step {}/{}  loss {}  grad {:.3f}  lr {:.2e}  {:.0f} img/s{}{}  ms: data {:.0f} fwd {:.0f} bwd {:.0f} opt {:.0f}{}  ETA {}",
      steps_done, max_steps_, mean_loss_.has_value() ? fmt::format("{:.4f}", *mean_loss_) : "-", grad_norm_, report.learning_rate,
      1000.0 * static_cast<double>(batch_size_) / mean_ms_, reached, share, times.data_ms, phases_.forward_ms, phases_.backward_ms,
      phases_.update_ms, wait, clock_text(static_cast<double>(max_steps_ - steps_done) * mean_ms_ / 1000.0));
}

}  // namespace darkroom
