#pragma once

#include <string>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Writes RUN/report.html: one file without scripts and without network, from what lies in the run folder: the curves of
/// metrics.jsonl, the newest sample sheets, where the time went, the checkpoints, the recipe, and the stage table of the
/// dataset's job when its folder has one (`data_uri`, may be empty). Replaces an older report in one atomic step.
/// Errors: kNotFound (no metrics.jsonl), kCorruptData (a line that is no JSON, naming it), those of the file system.
Status write_run_report(FileSystem& files, const std::string& run_folder, const std::string& data_uri);

}  // namespace darkroom
