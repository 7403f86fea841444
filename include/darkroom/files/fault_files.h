#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// What goes wrong at the chosen call.
enum class Fault {
  kNoSpace,      ///< The call does nothing and fails as ENOSPC does.
  kInputOutput,  ///< The call does nothing and fails as EIO does.
  kShortWrite,   ///< A write stores half of its bytes, then fails as ENOSPC does; other calls as kNoSpace.
  kDeath,        ///< The process dies: this call and every later one do nothing and fail.
};

/// Passes every call on and makes one of them fail. Counted are the calls that change something: create, open_append,
/// write, sync, close, create_folders, both renames, both removes, sync_file, sync_folder.
/// Files that it opened must not outlive it. Thread safety: as FileSystem.
class FaultInjectingFileSystem final : public FileSystem {
 public:
  explicit FaultInjectingFileSystem(FileSystem& files) : files_(files) {}

  /// Call number `call` (from 0, counted from now on) meets `fault`. Replaces an earlier plan.
  void fail_call(int64_t call, Fault fault);
  /// No more faults; the count starts again.
  void heal();
  /// How many calls were counted since the last fail_call() or heal().
  int64_t num_calls() const;

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override;
  Result<FileInfo> stat(const std::string& path) override;
  Result<WriteTarget> find_write_target(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& folder) override;
  Status create_folders(const std::string& folder) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status rename_replace(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status remove_tree(const std::string& path) override;
  Status sync_file(const std::string& path) override;
  Status sync_folder(const std::string& folder) override;
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override;

 private:
  friend class FaultyOutputFile;

  /// Counts one call; the fault that it meets, if any.
  std::optional<Fault> next_fault();
  /// kDeath's failure once the process is dead, for calls that are not counted.
  Status check_alive() const;

  FileSystem& files_;
  mutable std::mutex mutex_;  // Guards all below.
  int64_t num_calls_ = 0;
  int64_t fault_call_ = -1;
  Fault fault_ = Fault::kNoSpace;
  bool dead_ = false;
};

}  // namespace darkroom
