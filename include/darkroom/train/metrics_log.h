#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

class LostRecords;  // src/train/spool_records.h

/// metrics.jsonl of a run folder: one JSON object a line, each with "step" (docs/formats/run_folder.md).
/// Thread safety: one object, one thread.
class MetricsLog {
 public:
  /// Opens the log for a run that has done `steps_done` steps: lines of later steps, and a torn last line, are cut away
  /// first (in one atomic step). Lines that a full disk does not take fail, or are counted in `lost`, which outlives the log, as `files` do
  /// then. Errors: those of the file system.
  static Result<std::unique_ptr<MetricsLog>> open(FileSystem& files, const std::string& path, int64_t steps_done,
                                                  LostRecords* lost = nullptr);

  /// Appends one object, keys in the order given. REQUIRES: an object with an integer "step".
  Status append(const nlohmann::ordered_json& line);
  /// Wall time of the run that the last kept line of earlier starts states; 0 without one.
  double seconds_before() const { return seconds_before_; }
  /// What was appended survives a power loss once this returns ok.
  Status sync() { return file_->sync(); }

 private:
  MetricsLog(std::unique_ptr<OutputFile> file, double seconds_before) : file_(std::move(file)), seconds_before_(seconds_before) {}

  std::unique_ptr<OutputFile> file_;
  double seconds_before_;
};

/// Mean loss of the first 50 and of the last 50 lines that have one, of fewer than 100 of either half; zeros when there is none.
std::pair<double, double> first_and_last_loss(std::string_view metrics);

}  // namespace darkroom
