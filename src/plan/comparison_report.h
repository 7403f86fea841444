#pragma once

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"
#include "darkroom/plan/business.h"

namespace darkroom {

/// Fills the scores, the difference and its standard error of `comparison` from its `report` of `darkroom compare`
/// (docs/formats/comparison.md), which may be anybody's bytes. Errors: those of reading; kCorruptData naming file and field of what is no
/// such report; kFailedPrecondition where the report is an earlier version's, lacks the measure, or the measure cannot be a score.
Status read_comparison_report(FileSystem& files, ModelComparison& comparison);

}  // namespace darkroom
