#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// What figures and charts need of metrics.jsonl: a few numbers a line, not the lines.
struct RunMetrics {
  static constexpr size_t kMaxPhases = 16;

  int64_t num_lines = 0;
  nlohmann::json last;  ///< The last line, an object with a number "step"; null without a line.
  /// step, samples, seconds, loss, validation_loss, grad_norm, lr, images_per_second, tflops, mfu, peak_memory_bytes: a value a
  /// line, NaN where it has none.
  std::map<std::string, std::vector<double>, std::less<>> columns;
  /// Sums over the lines of the phases that add up to a step, in the order in which it goes through them; names after the first kMaxPhases
  /// are left out. On a GPU (a line with `device_idle`) these are the phases by its clock: the program's waits, `data` and `device_wait`,
  /// lie beside them.
  std::vector<std::pair<std::string, double>> phase_ms;
  int64_t num_timed_lines = 0;  ///< Lines that have phases.

  /// REQUIRES: one of these.
  const std::vector<double>& column(std::string_view field) const;
  /// Those of a column that are there.
  std::vector<double> values_of(std::string_view field) const;
};

/// Streams metrics.jsonl. A last line without its line end, which a killed run leaves, does not count, whatever its length.
/// Errors: kNotFound, kCorruptData naming the line (no object with a step, or more than 1 MiB), those of the file system.
Result<RunMetrics> read_run_metrics(FileSystem& files, const std::string& path);

}  // namespace darkroom
