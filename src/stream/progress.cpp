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

constexpr double kLeastAccounted = 0.5;  // Of the time of a stage's workers, for a share of it to be shown.

double share_of(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

/// What a stage's line has in each column; an empty one has nothing to say.
using StageCells = std::vector<std::string>;

StageCells cells_of(const StageSnapshot& stage, const ProgressRates::OfStage& rates, int64_t rows_to_do, int bar) {
  const bool has_bar = bar > 0 && rows_to_do > 0;
  return {stage.name,
          has_bar ? draw_bar(share_of(stage.num_rows, rows_to_do), bar) : "",
          has_bar ? fmt::format("{}/{} rows", stage.num_rows, rows_to_do) : fmt::format("{} rows", stage.num_rows),
          fmt::format("{:.1f} rows/s", rates.rows),
          stage.num_bytes > 0 ? fmt::format("{:.1f} MB/s", rates.bytes * 1e-6) : "",
          stage.queue_capacity > 0 ? fmt::format("queue {}/{}", stage.queue_depth, stage.queue_capacity) : "",
          rates.busy_share ? fmt::format("busy {:.0f}% of {}", 100 * *rates.busy_share, stage.num_workers) : ""};
}

/// Lines whose columns stand below each other: the names to the left, all else to the right. A column without a word takes no room.
std::vector<std::string> align(const std::vector<StageCells>& rows) {
  std::vector<std::string> lines(rows.size());
  for (size_t column = 0; column < rows.front().size(); ++column) {
    size_t width = 0;
    for (const StageCells& row : rows) {
      width = std::max(width, row[column].size());
    }
    for (size_t i = 0; i < rows.size() && width > 0; ++i) {
      lines[i] += column == 0 ? fmt::format("{:<{}}", rows[i][column], width) : fmt::format("  {:>{}}", rows[i][column], width);
    }
  }
  for (std::string& line : lines) {
    line.resize(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

}  // namespace

ProgressMeter::ProgressMeter(RateWindow::Time start) : start_(start) {
  rows_.add(start, 0);
  bytes_.add(start, 0);
}

ProgressRates ProgressMeter::look(RateWindow::Time now, const ProgressState& state) {
  const auto per_second = [now](RateWindow& window, double total) {
    window.add(now, total);
    return window.per_second();
  };
  while (stages_.size() < state.stages.size()) {
    OfStage& stage = stages_.emplace_back();
    for (RateWindow* window : {&stage.rows, &stage.bytes, &stage.busy, &stage.accounted}) {
      window->add(start_, 0);
    }
  }
  ProgressRates rates{.rows = per_second(rows_, static_cast<double>(state.rows_done - state.rows_before)),
                      .bytes = per_second(bytes_, static_cast<double>(state.num_bytes))};
  for (size_t i = 0; i < state.stages.size(); ++i) {
    const StageSnapshot& stage = state.stages[i];
    const double busy = per_second(stages_[i].busy, stage.busy_seconds);
    const double accounted = per_second(stages_[i].accounted, stage.busy_seconds + stage.blocked_seconds + stage.starved_seconds);
    // Workers account for their time when they change from one thing to another: of a few moments nothing can be told.
    const bool is_known = accounted > 0 && accounted >= kLeastAccounted * stage.num_workers;
    rates.stages.push_back({.rows = per_second(stages_[i].rows, static_cast<double>(stage.num_rows)),
                            .bytes = per_second(stages_[i].bytes, static_cast<double>(stage.num_bytes)),
                            .busy_share = is_known ? std::optional(std::min(1.0, busy / accounted)) : std::nullopt});
  }
  return rates;
}

std::string format_progress(const std::string& name, const ProgressState& state, const ProgressRates& rates) {
  std::string text = fmt::format("{} {}", name, state.rows_done);
  if (state.rows_total > 0) {
    text += fmt::format("/{} rows ({:.1f}%)", state.rows_total, 100 * share_of(state.rows_done, state.rows_total));
  } else {
    text += " rows";
  }
  text += fmt::format(", {:.1f} rows/s", rates.rows);
  if (state.num_bytes >= 0) {
    text += fmt::format(", {:.1f} MB/s, queue {}", rates.bytes * 1e-6, state.queue_depth);
  }
  if (state.rows_total > 0 && rates.rows > 0) {
    text += ", ETA " + clock_text(static_cast<double>(state.rows_total - state.rows_done) / rates.rows);
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

std::string terminal_bar(double share) {
  const int width = bar_width(terminal_columns());
  return width > 0 ? draw_bar(share, width) + " " : "";
}

std::string format_progress_bar(const std::string& name, const ProgressState& state, const ProgressRates& rates, int columns) {
  const std::string line = format_progress(name, state, rates);
  const int width = bar_width(columns);
  if (width == 0 || state.rows_total <= 0) {
    return line;
  }
  return name + " " + draw_bar(share_of(state.rows_done, state.rows_total), width) + line.substr(name.size());
}

std::string format_progress_lines(const std::string& name, const ProgressState& state, const ProgressRates& rates, int columns) {
  const int64_t rows_to_do = state.rows_total > 0 ? state.rows_total - state.rows_before - state.rows_filtered : 0;
  std::vector<StageCells> cells;
  for (size_t i = 0; i < state.stages.size(); ++i) {
    cells.push_back(cells_of(state.stages[i], rates.stages.at(i), rows_to_do, bar_width(columns)));
  }
  std::string text;
  for (const std::string& line : cells.empty() ? std::vector<std::string>() : align(cells)) {
    text += line + '\n';
  }
  return text + format_progress_bar(name, state, rates, columns);
}

ProgressReporter::ProgressReporter(std::string name, std::function<ProgressState()> state)
    : name_(std::move(name)), state_(std::move(state)), meter_(std::chrono::steady_clock::now()) {
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
    const ProgressState state = state_();
    const ProgressRates rates = meter_.look(std::chrono::steady_clock::now(), state);
    if (terminal) {
      show_progress(format_progress_lines(name_, state, rates, terminal_columns()));
    } else {
      log_info("{}", format_progress(name_, state, rates));
    }
  }
  show_progress("");
}

}  // namespace darkroom
