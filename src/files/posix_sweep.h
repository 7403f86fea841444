#pragma once

#include <chrono>

#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// Store::sweep of a store of files. `oldest`: where there are no locks, what another machine made before it counts as dead.
Result<SweepReport> sweep_posix_folder(const Location& folder, FileSystem& files, std::chrono::sys_seconds oldest);

}  // namespace darkroom
