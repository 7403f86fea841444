#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "metrics_page.h"

namespace darkroom {

/// What one look at a process gave.
struct ProcessLook {
  std::string where;  ///< Its address, or a run's metrics.jsonl.
  MetricsPage page = {};
  nlohmann::json last_line = nlohmann::json();  ///< Of a run's metrics.jsonl instead of a page; null: a page.
  std::string failure = {};                     ///< Why there is neither; empty: there is one.
};

/// The looks of one moment.
struct TopLook {
  std::chrono::steady_clock::time_point at;
  std::vector<ProcessLook> processes;
};

struct TopLine {
  std::string text;
  bool is_heading = false;
};

/// One frame. Rates are those since `before`, for processes that were there; of others the means since they began.
std::vector<TopLine> draw_frame(const TopLook& now, const TopLook* before);

/// The frame cut to a terminal of so many columns and rows (0: not cut), headings bold where it may be.
std::string frame_text(const std::vector<TopLine>& lines, size_t columns, size_t rows, bool is_colored);

}  // namespace darkroom
