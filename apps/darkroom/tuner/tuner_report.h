#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/tune/trial_ledger.h"
#include "darkroom/tune/tune_report.h"
#include "tuner.h"

namespace darkroom {

/// Where the things of a search lie in its folder (docs/formats/tune_folder.md).
std::string trial_folder(const std::string& output, int64_t trial);

/// The report of a search from its ledger and the trials' metrics. REQUIRES: the record has a plan.
Result<TuneReport> read_tune_report(const TuneOptions& options, const std::vector<SearchAxis>& axes, const TuneRecord& record);

/// Writes report.json, report.html and, where a trial was scored, best.toml: each in one atomic step.
Status write_tune_report(const TuneOptions& options, const TuneReport& report);

}  // namespace darkroom
