#pragma once

#include <map>
#include <string>

#include "darkroom/ingest/job_inputs.h"

namespace darkroom {

/// As measure_inputs, but a file that cannot be used is noted in `unusable` by its path, and the others are measured all the same. What may
/// pass (kUnavailable, kResourceExhausted, kCancelled) stays an error.
Status measure_usable_inputs(Store* store, const CheckColumns& check_columns, const std::stop_token& stop, std::vector<JobInput>& inputs,
                             std::map<std::string, Status>& unusable);

}  // namespace darkroom
