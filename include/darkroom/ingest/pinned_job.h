#pragma once

#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/ingest/job_identity.h"

namespace darkroom {

/// A job as its output folder describes it: what it is and which files it reads. Made without a look at inputs, models or parts.
struct PinnedJob {
  JobIdentity identity = {};
  std::vector<JobInput> inputs = {};  ///< Numbered; without paths and stores.

  int64_t num_items() const { return num_items_of(inputs, identity.rows_per_file); }
  /// The whole item of generation 0. REQUIRES: 0 <= number < num_items().
  WorkItem item(int64_t number) const;
};

/// Reads _job.json and the pinned list. Errors: kNotFound: no job was begun there, or its list is gone; kFailedPrecondition: a job of
/// another version of the format; kCorruptData; the store's.
Result<PinnedJob> read_pinned_job(const Location& output);

}  // namespace darkroom
