#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// The files of a dataset as they were listed: a part whose next generation came since, and which moved aside for it, is read there, also
/// when it moves while it is read. For reading. Thread safety: any thread.
class ListedParts final : public FileSystem {
 public:
  /// REQUIRES: `files` outlives this.
  ListedParts(FileSystem& files, const std::vector<FileInfo>& inputs);

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override;
  Result<FileInfo> stat(const std::string& path) override { return files_.stat(path); }
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return files_.list(folder); }
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override { return refusal(path); }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override { return refusal(path); }
  Status create_folders(const std::string& folder) override { return refusal(folder); }
  Status rename_no_replace(const std::string& from, const std::string& /*to*/) override { return refusal(from); }
  Status rename_replace(const std::string& from, const std::string& /*to*/) override { return refusal(from); }
  Status remove_file(const std::string& path) override { return refusal(path); }
  Status remove_tree(const std::string& path) override { return refusal(path); }
  Status sync_file(const std::string& path) override { return refusal(path); }
  Status sync_folder(const std::string& folder) override { return refusal(folder); }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override { return refusal(path); }

 private:
  static Status refusal(const std::string& path);

  FileSystem& files_;
  std::map<std::string, int64_t> sizes_;  // Of the parts, by path.
};

}  // namespace darkroom
