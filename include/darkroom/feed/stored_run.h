#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "darkroom/core/status.h"
#include "darkroom/files/store.h"

namespace darkroom {

// A run folder on a store that cannot append (docs/formats/run_folder.md): metrics.jsonl and the event files are there as numbered parts,
// one a checkpoint, whose names end with the checkpoint's step. Laid one behind the other they are the local files. A local run
// folder that was copied there has a metrics.jsonl as well, which comes first.

/// "metrics-0000001000.jsonl": the lines up to that step, from after the part before it on.
std::string metrics_part_name(int64_t step);
/// "events.out.tfevents.START.darkroom.0000001000": what was added to the event file EVENTS up to that step.
std::string events_part_name(std::string_view events_file, int64_t step);
/// The step that a part's name ends with; nothing for a name of neither kind.
std::optional<int64_t> step_of_metrics_part(std::string_view name);
std::optional<int64_t> step_of_events_part(std::string_view name);

/// Copies the files of a run, its checkpoints' left aside, into a local folder, and lays the parts of metrics.jsonl up to `last_step` one
/// behind the other; event files are not copied. `takes` chooses among the other files, by their paths within the run, and among the
/// folders, whose names end with a slash; none: all. Errors: kNotFound (nothing there), kCancelled, those of store and disk.
Status fetch_run_files(const Location& run, const std::string& folder, int64_t last_step,
                       const std::function<bool(const std::string& name)>& takes = {}, const std::stop_token& stop = {});

}  // namespace darkroom
