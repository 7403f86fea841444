#pragma once

#include "support/forwarding_files.h"

namespace darkroom {

/// What a file system lacks.
struct Poverty {
  bool has_no_replace = true;  ///< Neither RENAME_NOREPLACE nor hard links; folders are renamed as everywhere.
  bool has_locks = true;
};

/// Files on a poor file system.
class PoorFiles final : public ForwardingFiles {
 public:
  PoorFiles(FileSystem& files, Poverty poverty) : ForwardingFiles(files), poverty_(poverty) {}

  Status rename_no_replace(const std::string& from, const std::string& to) override {
    const Result<FileInfo> info = stat(from);
    if (!poverty_.has_no_replace && info.is_ok() && !info->is_folder) {
      return Status::failed_precondition("cannot rename to: operation not supported", to);
    }
    return ForwardingFiles::rename_no_replace(from, to);
  }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    if (!poverty_.has_locks) {
      return Status::failed_precondition("cannot lock: no locks available", path);
    }
    return ForwardingFiles::try_lock(path);
  }

 private:
  Poverty poverty_;
};

}  // namespace darkroom
