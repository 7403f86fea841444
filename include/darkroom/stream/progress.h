#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/stream/rate_window.h"
#include "darkroom/stream/stage_stats.h"

namespace darkroom {

/// How far a job is.
struct ProgressState {
  int64_t rows_done = 0;                              ///< Of the whole job, with what earlier runs did.
  int64_t rows_total = 0;                             ///< 0: not known.
  int64_t rows_before = 0;                            ///< Part of rows_done that this run found done.
  int64_t rows_filtered = 0;                          ///< Part of rows_done that this run's stages did not get to see.
  int64_t num_bytes = 0;                              ///< That this run moved; negative: the job moves none and has no queue.
  size_t queue_depth = 0;                             ///< Pieces waiting before the slowest stage.
  std::map<std::string, int64_t> rows_by_error = {};  ///< Of this run.
  std::vector<StageSnapshot> stages = {};             ///< Of this run; none where it is no pipeline.
};

/// How fast it gets on: what was gained per second in the last minute.
struct ProgressRates {
  struct OfStage {
    double rows = 0;
    double bytes = 0;
    std::optional<double> busy_share = {};  ///< Of its workers' time; nothing while they have accounted for less than half.
  };

  double rows = 0;
  double bytes = 0;
  std::vector<OfStage> stages = {};
};

/// Finds the rates of a job from one look at it to the next. Thread safety: one thread at a time.
class ProgressMeter {
 public:
  /// `start`: when this run had done nothing yet.
  explicit ProgressMeter(RateWindow::Time start);
  /// REQUIRES: `now` is not before the last look's; the stages are the same ones at each look.
  ProgressRates look(RateWindow::Time now, const ProgressState& state);

 private:
  struct OfStage {
    RateWindow rows;
    RateWindow bytes;
    RateWindow busy;
    RateWindow accounted;  // Busy, blocked and starved.
  };

  const RateWindow::Time start_;
  RateWindow rows_;
  RateWindow bytes_;
  std::vector<OfStage> stages_;
};

/// "download 1200/4000 rows (30.0%), 310.5 rows/s, 12.1 MB/s, queue 12, ETA 0:09, errors: http_404 3, timeout 1". No ETA where nothing gets
/// on.
std::string format_progress(const std::string& name, const ProgressState& state, const ProgressRates& rates);

/// The same with a bar behind the name, for a terminal of so many columns; narrow ones get no bar.
std::string format_progress_bar(const std::string& name, const ProgressState& state, const ProgressRates& rates, int columns);

/// A line for each stage and last the job's: "fetch  [####------] 1200/4000 rows  310.5 rows/s  12.1 MB/s  queue 3/64  busy 43% of 4". A
/// stage's rows are those of this run; narrow terminals get neither bars nor totals of them.
/// REQUIRES: `rates` are of these stages.
std::string format_progress_lines(const std::string& name, const ProgressState& state, const ProgressRates& rates, int columns);

/// "[#####-----]", `width` characters between the brackets; `share` from 0 to 1.
std::string draw_bar(double share, int width);
/// Characters of the bar that a terminal of so many columns has room for; 0: none.
int bar_width(int columns);
/// A bar and a space, as wide as the terminal at stderr has room for; empty where it has none. `share` from 0 to 1.
std::string terminal_bar(double share);

/// A time to go or gone as every stage writes it: "0:09", "12:34", "3:07:05"; whole seconds, rounded up.
std::string clock_text(double seconds);

/// Shows a job's state while it lives: lines that renew themselves on a terminal (one for each stage and the job's), otherwise a log line
/// of the job every ten seconds. `state` is called from the reporter's own thread. Where no thread can be started, nothing is shown.
/// REQUIRES: made where this run has done nothing yet.
class ProgressReporter {
 public:
  ProgressReporter(std::string name, std::function<ProgressState()> state);
  ~ProgressReporter();
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

 private:
  void report(const std::stop_token& stop);

  const std::string name_;
  const std::function<ProgressState()> state_;
  ProgressMeter meter_;  // The reporter's thread's.
  std::jthread thread_;
};

}  // namespace darkroom
