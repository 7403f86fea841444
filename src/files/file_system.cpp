#include "darkroom/files/file_system.h"

#include <algorithm>

namespace darkroom {

namespace {

constexpr int kMaxFolderDepth = 64;

Status collect_files(FileSystem& files, const std::string& folder, int depth, std::vector<FileInfo>& found) {
  if (depth > kMaxFolderDepth) {
    return Status::failed_precondition("listing stopped: folders are nested too deep, or links form a loop (path):", folder);
  }
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, files.list(folder));
  for (FileInfo& entry : entries) {
    if (entry.is_folder) {
      DARKROOM_RETURN_IF_ERROR(collect_files(files, entry.path, depth + 1, found));
    } else {
      found.push_back(std::move(entry));
    }
  }
  return Status::ok();
}

}  // namespace

Status InputFile::read_ranges(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out) const {
  DARKROOM_CHECK(ranges.size() == out.size(), "ranges and buffers differ in number (ranges, buffers):", ranges.size(), out.size());
  for (size_t index = 0; index < ranges.size(); ++index) {
    const auto [offset, num_bytes] = ranges[index];
    DARKROOM_CHECK(offset >= 0 && num_bytes == static_cast<int64_t>(out[index].size()),
                   "a range does not fit its buffer (range, buffer):", num_bytes, out[index].size());
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, read_at(offset, out[index]));
    if (num_read != out[index].size()) {
      return Status::corrupt_data("a file ends before what is to be read of it (path, offset, wanted bytes, bytes there):", path(), offset,
                                  num_bytes, num_read);
    }
  }
  return Status::ok();
}

Result<WriteTarget> FileSystem::find_write_target(const std::string& path) { return WriteTarget{.path = path, .is_stream = false}; }

Result<bool> FileSystem::exists(const std::string& path) {
  Result<FileInfo> info = stat(path);
  if (!info.is_ok() && info.status().code() != StatusCode::kNotFound) {
    return info.status();
  }
  return info.is_ok();
}

Result<std::vector<FileInfo>> FileSystem::list_tree(const std::string& folder) {
  std::vector<FileInfo> found;
  DARKROOM_RETURN_IF_ERROR(collect_files(*this, folder, 0, found));
  std::sort(found.begin(), found.end(), [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  return found;
}

Result<std::string> read_file(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<InputFile> file, files.open_input(path));
  // A growing size, so that files whose stated size is 0 (as in /proc) are read too.
  constexpr size_t kStepBytes = 64 << 10;
  std::string text(static_cast<size_t>(file->size_bytes()), '\0');
  size_t num_read = 0;
  while (true) {
    if (num_read == text.size()) {
      text.resize(text.size() + kStepBytes);
    }
    const auto rest = std::as_writable_bytes(std::span(text)).subspan(num_read);
    DARKROOM_ASSIGN_OR_RETURN(const size_t step, file->read_at(static_cast<int64_t>(num_read), rest));
    num_read += step;
    if (step < rest.size()) {
      text.resize(num_read);
      return text;
    }
  }
}

}  // namespace darkroom
