#pragma once

#include <stop_token>

#include "damage_log.h"
#include "darkroom/core/status.h"
#include "darkroom/show/inspect.h"

namespace darkroom {

/// Describes the tables that options.uri names into `report`; what --verify finds goes to `damage`.
/// Errors: as inspect().
Status inspect_tables(FileSystem& files, const InspectOptions& options, const std::stop_token& stop, InspectReport& report,
                      DamageLog& damage);

}  // namespace darkroom
