#pragma once

#include <memory>
#include <string>
#include <vector>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// Passes every call on to other files: a test's own file system overrides what it is about.
class ForwardingFiles : public FileSystem {
 public:
  /// REQUIRES: `files` outlives this.
  explicit ForwardingFiles(FileSystem& files) : files_(files) {}

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override { return files_.open_input(path); }
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override { return files_.create(path); }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override { return files_.open_append(path); }
  Result<FileInfo> stat(const std::string& path) override { return files_.stat(path); }
  Result<WriteTarget> find_write_target(const std::string& path) override { return files_.find_write_target(path); }
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return files_.list(folder); }
  Status create_folders(const std::string& folder) override { return files_.create_folders(folder); }
  Status rename_no_replace(const std::string& from, const std::string& to) override { return files_.rename_no_replace(from, to); }
  Status rename_replace(const std::string& from, const std::string& to) override { return files_.rename_replace(from, to); }
  Status remove_file(const std::string& path) override { return files_.remove_file(path); }
  Status remove_tree(const std::string& path) override { return files_.remove_tree(path); }
  Status sync_file(const std::string& path) override { return files_.sync_file(path); }
  Status sync_folder(const std::string& folder) override { return files_.sync_folder(folder); }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override { return files_.try_lock(path); }

 private:
  FileSystem& files_;
};

}  // namespace darkroom
