#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// Files in memory that know what a power loss takes away: bytes written since the file's last sync, and names made,
/// renamed or removed since the folder's last sync. Files that it opened must not outlive it.
/// "a/b", "/a/b" and "./a//b" are the same path; the root folder exists from the start.
class MemoryFileSystem final : public FileSystem {
 public:
  struct Node;

  MemoryFileSystem();
  ~MemoryFileSystem() override;

  /// A power loss. With seed 0 everything unsynced is lost; another seed draws, for each unsynced name, whether the old
  /// or the new state survived, and for each file how much of its unsynced bytes did (with zeros in place of some).
  /// Locks are gone; files open before it must not be used again.
  void crash(uint64_t seed);

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override;
  Result<FileInfo> stat(const std::string& path) override;
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
  std::shared_ptr<Node> find(const std::string& path) const;
  Result<std::shared_ptr<Node>> find_folder(const std::string& path) const;
  Status move(const std::string& from, const std::string& to);

  mutable std::mutex mutex_;  // Guards the tree and every file's bytes.
  std::shared_ptr<Node> root_;
};

}  // namespace darkroom
