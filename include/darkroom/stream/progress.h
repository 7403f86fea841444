#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace darkroom {

/// How far a job is.
struct ProgressState {
  int64_t rows_done = 0;                              ///< Of the whole job, with what earlier runs did.
  int64_t rows_total = 0;                             ///< 0: not known.
  int64_t rows_before = 0;                            ///< Part of rows_done that this run found done.
  int64_t num_bytes = 0;                              ///< That this run moved; negative: the job moves none and has no queue.
  size_t queue_depth = 0;                             ///< Pieces waiting before the slowest stage.
  std::map<std::string, int64_t> rows_by_error = {};  ///< Of this run.
};

/// "download 1200/4000 rows (30.0%), 310.5 rows/s, 12.1 MB/s, queue 12, ETA 0:09, errors: http_404 3, timeout 1".
std::string format_progress(const std::string& name, const ProgressState& state, std::chrono::duration<double> elapsed);

/// The same with a bar behind the name, for a terminal of so many columns; narrow ones get no bar.
std::string format_progress_bar(const std::string& name, const ProgressState& state, std::chrono::duration<double> elapsed, int columns);

/// "[#####-----]", `width` characters between the brackets; `share` from 0 to 1.
std::string draw_bar(double share, int width);
/// Characters of the bar that a terminal of so many columns has room for; 0: none.
int bar_width(int columns);

/// A time to go or gone as every stage writes it: "0:09", "12:34", "3:07:05"; whole seconds, rounded up.
std::string clock_text(double seconds);

/// Shows a job's state while it lives: a line that renews itself on a terminal, otherwise a log line every ten seconds.
/// `state` is called from the reporter's own thread. Where no thread can be started, nothing is shown.
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
  const std::chrono::steady_clock::time_point start_;
  std::jthread thread_;
};

}  // namespace darkroom
