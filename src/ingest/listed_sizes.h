#pragma once

#include <stop_token>

#include "darkroom/core/result.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/ingest/job_summary.h"

namespace darkroom {

/// Looks whether the first table with pending rows has a column of the pictures' sizes in bytes (size, bytes, size_bytes, file_size,
/// content_length, in any case), and takes the mean of the numbers in the first 10,000 of these rows. Nothing where there is none.
/// Errors: open_pinned_input's and the reader's.
Status look_for_sizes(const JobPlan& plan, const std::stop_token& stop, PendingWork& work);

}  // namespace darkroom
