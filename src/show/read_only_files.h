#pragma once

#include <memory>
#include <string>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// A file system that refuses with kFailedPrecondition whatever would change it.
class ReadOnlyFiles : public FileSystem {
 public:
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) final { return refusal(path); }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) final { return refusal(path); }
  Status create_folders(const std::string& folder) final { return refusal(folder); }
  Status rename_no_replace(const std::string& from, const std::string& /*to*/) final { return refusal(from); }
  Status rename_replace(const std::string& from, const std::string& /*to*/) final { return refusal(from); }
  Status remove_file(const std::string& path) final { return refusal(path); }
  Status remove_tree(const std::string& path) final { return refusal(path); }
  Status sync_file(const std::string& path) final { return refusal(path); }
  Status sync_folder(const std::string& folder) final { return refusal(folder); }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) final { return refusal(path); }

 private:
  static Status refusal(const std::string& path) {
    return Status::failed_precondition("a dataset is only looked at here (address):", path);
  }
};

}  // namespace darkroom
