#pragma once

#include <stop_token>
#include <vector>

#include "damage_log.h"
#include "darkroom/core/status.h"
#include "darkroom/show/inspect.h"

namespace darkroom {

/// What options.uri names.
struct TableInputs {
  std::vector<FileInfo> inputs = {};
  bool are_a_folders = false;  ///< All tables of a folder, so that a missing one is damage.
};

/// Describes tables into `report`; what --verify finds goes to `damage`. Errors: as inspect().
Status inspect_tables(FileSystem& files, const TableInputs& tables, const InspectOptions& options, const std::stop_token& stop,
                      InspectReport& report, DamageLog& damage);

}  // namespace darkroom
