#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// A validation of a trial.
struct CurvePoint {
  int64_t step = 0;
  int64_t samples = 0;
  double seconds = 0;  ///< Wall time of the trial's run until then.
  double loss = 0;     ///< Not finite where the run had diverged.
};

/// What a search needs of a trial's metrics.jsonl.
struct TrialCurve {
  std::vector<CurvePoint> validations = {};  ///< In the order of their steps.
  int64_t last_step = 0;
  double seconds = 0;            ///< At the last line.
  double images_per_second = 0;  ///< Median over the lines but the first; 0: unknown.

  /// The validation at a step; nothing where there is none.
  std::optional<CurvePoint> at(int64_t step) const;
};

/// Reads it; a torn last line and lines without a step are left aside. No file: a curve without a point. Errors: those of the files.
Result<TrialCurve> read_trial_curve(FileSystem& files, const std::string& path);

}  // namespace darkroom
