#pragma once

#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// A run folder of `train` that may be looked at while its training goes on.
struct ServedRun {
  std::string name;  ///< Among all that are served: the folder's own, with -2, -3, ... where it is taken.
  std::string path;  ///< Of this machine.
};

/// Names the run folders. Errors: kInvalidArgument (on a store, the same folder twice), kNotFound (no folder, or none of a run).
Result<std::vector<ServedRun>> name_served_runs(const std::vector<std::string>& folders);

}  // namespace darkroom
