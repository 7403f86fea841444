#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "darkroom/core/clock.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Locks a folder against every other process that does so before it writes there. A null pointer where the file system has no locks:
/// whoever asks goes on without. Errors: kFailedPrecondition with the sentence `when_held`, whose end the folder is, when another holds it;
/// those of FileSystem::try_lock.
Result<std::unique_ptr<FileLock>> lock_folder(FileSystem& files, const std::string& folder, std::string_view when_held);

/// Waits until nobody holds a folder's lock, at most for `patience`: a process that was killed has gone, but its children may hold a lock
/// for a moment more. Returns at once where there is no such folder, or no locks. Errors: as lock_folder; kCancelled.
Status await_unlocked(FileSystem& files, const std::string& folder, std::string_view when_held, std::chrono::milliseconds patience,
                      const std::stop_token& stop, Clock& clock = darkroom::system_clock());

}  // namespace darkroom
