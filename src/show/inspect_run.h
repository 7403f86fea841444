#pragma once

#include <stop_token>
#include <string>

#include "damage_log.h"
#include "darkroom/core/status.h"
#include "darkroom/show/inspect.h"

namespace darkroom {

/// Describes a checkpoint (docs/formats/checkpoint.md): state.json, its parts and their parameter counts. With --verify
/// the size and SHA-256 of every file and every weight are checked. Errors: as inspect().
Status inspect_checkpoint(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                          DamageLog& damage);

/// Describes a run folder (docs/formats/run_folder.md): its checkpoints, metrics and samples. With --verify every
/// checkpoint is verified. Errors: as inspect().
Status inspect_run_folder(FileSystem& files, const std::string& path, const InspectOptions& options, const std::stop_token& stop,
                          InspectReport& report, DamageLog& damage);

}  // namespace darkroom
