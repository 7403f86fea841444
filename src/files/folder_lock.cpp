#include "darkroom/files/folder_lock.h"

namespace darkroom {

Result<std::unique_ptr<FileLock>> lock_folder(FileSystem& files, const std::string& folder, std::string_view when_held) {
  auto lock = files.try_lock(folder);
  if (lock.status().code() == StatusCode::kFailedPrecondition) {  // Locks are not supported.
    return std::unique_ptr<FileLock>();
  }
  if (lock.is_ok() && *lock == nullptr) {
    return Status::failed_precondition(when_held, folder);
  }
  return lock;
}

Status await_unlocked(FileSystem& files, const std::string& folder, std::string_view when_held, std::chrono::milliseconds patience,
                      const std::stop_token& stop, Clock& clock) {
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  const Clock::Instant end = clock.now() + patience;
  while (true) {
    const auto lock = files.try_lock(folder);
    if (lock.status().code() == StatusCode::kFailedPrecondition || lock.status().code() == StatusCode::kNotFound) {
      return Status::ok();
    }
    if (!lock.is_ok() || *lock != nullptr) {
      return lock.status();
    }
    if (clock.now() >= end) {
      return Status::failed_precondition(when_held, folder);
    }
    if (!clock.sleep_until(clock.now() + kBetweenLooks, stop)) {
      return Status::cancelled("stopped while waiting for another process that holds a folder:", folder);
    }
  }
}

}  // namespace darkroom
