#include "darkroom/stream/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/verbosity.h"

namespace darkroom {
namespace {

std::string format_errors(const std::map<std::string, int64_t>& rows_by_error) {
  std::vector<std::pair<int64_t, std::string>> counts;
  for (const auto& [name, num_rows] : rows_by_error) {
    counts.emplace_back(-num_rows, name);
  }
  std::sort(counts.begin(), counts.end());
  constexpr size_t kShown = 6;
  std::string text = ", errors:";
  for (size_t i = 0; i < std::min(kShown, counts.size()); ++i) {
    text += fmt::format("{} {} {}", i == 0 ? "" : ",", counts[i].second, -counts[i].first);
  }
  return counts.size() > kShown ? text + ", ..." : text;
}

}  // namespace

std::string format_progress(const std::string& name, const ProgressState& state, std::chrono::duration<double> elapsed) {
  const double seconds = std::max(elapsed.count(), 1e-9);
  const int64_t rows_here = state.rows_done - state.rows_before;
  const double rows_per_second = static_cast<double>(rows_here) / seconds;
  std::string text = fmt::format("{} {}", name, state.rows_done);
  if (state.rows_total > 0) {
    text += fmt::format("/{} rows ({:.1f}%)", state.rows_total,
                        100.0 * static_cast<double>(state.rows_done) / static_cast<double>(state.rows_total));
  } else {
    text += " rows";
  }
  text += fmt::format(", {:.1f} rows/s", rows_per_second);
  if (state.num_bytes >= 0) {
    text += fmt::format(", {:.1f} MB/s, queue {}", static_cast<double>(state.num_bytes) / seconds * 1e-6, state.queue_depth);
  }
  if (state.rows_total > 0 && rows_here > 0) {
    text += ", ETA " + clock_text(static_cast<double>(state.rows_total - state.rows_done) / rows_per_second);
  }
  return state.rows_by_error.empty() ? text : text + format_errors(state.rows_by_error);
}

std::string clock_text(double seconds) {
  constexpr double kLongest = 1e9;  // Thirty years; a rate next to nothing gives more.
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 0.0, kLongest)));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string draw_bar(double share, int width) {
  const auto filled = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * width);
  return "[" + std::string(filled, '#') + std::string(static_cast<size_t>(width) - filled, '-') + "]";
}

int bar_width(int columns) {
  constexpr int kLineColumns = 90;  // What the line itself takes without errors.
  return columns >= kLineColumns + 30 ? 25 : columns >= kLineColumns + 12 ? 10 : 0;
}

std::string format_progress_bar(const std::string& name, const ProgressState& state, std::chrono::duration<double> elapsed, int columns) {
  const std::string line = format_progress(name, state, elapsed);
  const int width = bar_width(columns);
  if (width == 0 || state.rows_total <= 0) {
    return line;
  }
  const double share = static_cast<double>(state.rows_done) / static_cast<double>(state.rows_total);
  return name + " " + draw_bar(share, width) + line.substr(name.size());
}

ProgressReporter::ProgressReporter(std::string name, std::function<ProgressState()> state)
    : name_(std::move(name)), state_(std::move(state)), start_(std::chrono::steady_clock::now()) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { report(stop); });
  } catch (const std::system_error&) {
    // No thread is to be had: the job goes on unseen.
  }
}

ProgressReporter::~ProgressReporter() = default;

void ProgressReporter::report(const std::stop_token& stop) {
  const bool terminal = stderr_is_terminal();
  const auto interval = terminal ? std::chrono::milliseconds(500) : std::chrono::milliseconds(10'000);
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  // The wait's own answer may be no at the moment of the stop: libstdc++ asks the token again after the condition.
  const auto asked_to_stop = [&] {
    wake.wait_for(lock, stop, interval, [] { return false; });
    return stop.stop_requested();
  };
  while (!asked_to_stop()) {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    if (terminal) {
      show_progress(format_progress_bar(name_, state_(), elapsed, terminal_columns()));
    } else {
      log_info("{}", format_progress(name_, state_(), elapsed));
    }
  }
  show_progress("");
}

}  // namespace darkroom
