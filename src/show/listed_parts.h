#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/files/file_system.h"
#include "read_only_files.h"

namespace darkroom {

/// The files of a dataset as they were listed: a part whose next generation came since, and which moved aside for it, is read there, also
/// when it moves while it is read. For reading. Thread safety: any thread.
class ListedParts final : public ReadOnlyFiles {
 public:
  /// REQUIRES: `files` outlives this.
  ListedParts(FileSystem& files, const std::vector<FileInfo>& inputs);

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override;
  Result<FileInfo> stat(const std::string& path) override { return files_.stat(path); }
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return files_.list(folder); }

 private:
  FileSystem& files_;
  std::map<std::string, int64_t> sizes_;  // Of the parts, by path.
};

}  // namespace darkroom
