#pragma once

#include <cstdint>
#include <stop_token>

#include "darkroom/ingest/job_plan.h"

namespace darkroom {

/// Whether every item of the job has a whole part: only then it is known which row is the first with its picture.
bool has_all_parts(const JobPlan& plan);

/// Whether no picture is there twice, as OUT/_unique.json (docs/formats/job.md) says of just these parts. Errors: the store's.
Result<bool> is_known_unique(const JobPlan& plan);
/// Says so for the next run. Errors: the store's.
Status note_unique(const JobPlan& plan);

/// The rows whose picture has the bytes of one in a row before them in the pinned list (--dedup content). Reads the pictures of all parts,
/// as often as their hashes (64 bytes each) fit into half of `memory_bytes`, on as many processors as the other half feeds (32 MiB each and
/// the hashes of eight parts); a bit a row besides, and two bytes or so for each that is found. The same rows for any number of processors.
/// Errors: BaseRows'; kResourceExhausted (more rows than `memory_bytes` has bits); kCancelled. REQUIRES: has_all_parts().
Result<RowsToRedo> find_repeated_contents(const JobPlan& plan, int64_t memory_bytes, const std::stop_token& stop);

}  // namespace darkroom
