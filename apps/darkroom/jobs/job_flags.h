#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "command_line.h"
#include "darkroom/ingest/selection.h"
#include "jobs/job_observation.h"

namespace darkroom {

/// Which part of a job a process does, and --clean: flags of every job.
void add_selection_flags(VerbDefinition& verb, Selection& selection, bool& clean);

/// Where what waits may go to disk.
struct ScratchFlags {
  std::string folder = {};
  int64_t num_bytes = -1;  ///< Negative: the default.
};
void add_scratch_flags(VerbDefinition& verb, ScratchFlags& scratch);

/// What --clean does instead of the job of `verb`: with its output alone. Errors: kInvalidArgument with --dry-run, too.
Result<int> run_clean(const ObservationFlags& flags, std::string_view verb, const std::string& output, bool is_dry_run,
                      VerbContext& context);

}  // namespace darkroom
