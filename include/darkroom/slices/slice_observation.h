#pragma once

#include <string>

#include "darkroom/core/metrics.h"
#include "darkroom/core/trace_recorder.h"
#include "darkroom/slices/slice_server.h"

namespace darkroom {

/// How a service of slices lets itself be looked at while it works (docs/metrics.md).
struct SliceObservation {
  std::string stage = {};              ///< Its name among the numbers, and that of a slice's span.
  MetricsRegistry* metrics = nullptr;  ///< Rows and bytes made, busy and starved time; may be null. Outlives the maker.
  TraceRecorder* trace = nullptr;      ///< A span for each slice; may be null. Outlives the maker.
};

/// The maker, looked at. `starved` is counted when a worker begins its next slice. REQUIRES: workers are 0 to num_workers - 1.
SliceMaker observe_slices(SliceMaker make, int num_workers, const SliceObservation& observation);

}  // namespace darkroom
