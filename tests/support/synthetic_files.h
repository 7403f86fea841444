#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/files/paths.h"
#include "support/forwarding_files.h"

namespace darkroom {

/// A folder of as many files as are wanted, which all hold the same bytes and take no room: for jobs with 200,000 inputs. Everything else
/// is passed on.
class SyntheticFiles final : public ForwardingFiles {
 public:
  /// Files folder/00000000.parquet and so on. REQUIRES: `files` outlives this.
  SyntheticFiles(FileSystem& files, std::string folder, int64_t num_files, std::string bytes)
      : ForwardingFiles(files),
        folder_(std::move(folder)),
        num_files_(num_files),
        bytes_(std::make_shared<const std::string>(std::move(bytes))) {}

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (parent_folder(path) == folder_) {
      return std::unique_ptr<InputFile>(std::make_unique<SyntheticFile>(path, bytes_));
    }
    return ForwardingFiles::open_input(path);
  }
  Result<FileInfo> stat(const std::string& path) override {
    if (path == folder_) {
      return FileInfo{.path = path, .is_folder = true};
    }
    return parent_folder(path) == folder_ ? info_of(path) : ForwardingFiles::stat(path);
  }
  Result<std::vector<FileInfo>> list(const std::string& folder) override {
    if (folder != folder_) {
      return ForwardingFiles::list(folder);
    }
    std::vector<FileInfo> infos;
    infos.reserve(static_cast<size_t>(num_files_));
    for (int64_t i = 0; i < num_files_; ++i) {
      infos.push_back(info_of(join_path(folder_, fmt::format("{:08d}.parquet", i))));
    }
    return infos;
  }

 private:
  class SyntheticFile final : public InputFile {
   public:
    SyntheticFile(std::string path, std::shared_ptr<const std::string> bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
    const std::string& path() const override { return path_; }
    int64_t size_bytes() const override { return static_cast<int64_t>(bytes_->size()); }
    Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
      const size_t begin = std::min(static_cast<size_t>(offset), bytes_->size());
      const size_t count = std::min(out.size(), bytes_->size() - begin);
      std::memcpy(out.data(), bytes_->data() + begin, count);
      return count;
    }

   private:
    const std::string path_;
    const std::shared_ptr<const std::string> bytes_;  // Shared by all files.
  };

  FileInfo info_of(const std::string& path) const { return {.path = path, .size_bytes = static_cast<int64_t>(bytes_->size())}; }

  const std::string folder_;
  const int64_t num_files_;
  const std::shared_ptr<const std::string> bytes_;
};

}  // namespace darkroom
