#include "listed_parts.h"

#include <mutex>
#include <span>
#include <utility>

#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {
namespace {

/// Errors: kNotFound also when what lies aside under the part's name has another size, so that it is another job's.
Result<std::unique_ptr<InputFile>> open_moved_part(FileSystem& files, const std::string& path, int64_t size_bytes) {
  const std::string aside = join_path(join_path(parent_folder(path), kSupersededFolder), file_name(path));
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<InputFile> file, files.open_input(aside));
  if (file->size_bytes() != size_bytes) {
    return Status::not_found("a part is gone, and what lies aside under its name is not it (part):", path);
  }
  return file;
}

/// In a store of objects an open file is read by its name.
class MovingPart final : public InputFile {
 public:
  MovingPart(FileSystem& files, std::string path, std::unique_ptr<InputFile> file)
      : files_(files), path_(std::move(path)), shown_path_(file->path()), file_(std::move(file)) {}

  const std::string& path() const override { return shown_path_; }
  int64_t size_bytes() const override { return current()->size_bytes(); }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    Result<size_t> read = current()->read_at(offset, out);
    return has_moved(read.status()) ? current()->read_at(offset, out) : std::move(read);
  }
  Status read_ranges(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out) const override {
    const Status read = current()->read_ranges(ranges, out);
    return has_moved(read) ? current()->read_ranges(ranges, out) : read;
  }
  bool is_remote() const override { return current()->is_remote(); }

 private:
  std::shared_ptr<const InputFile> current() const {
    const std::lock_guard hold(mutex_);
    return file_;
  }
  /// Whether that is why it could not be read; then it is open where it is now.
  bool has_moved(const Status& read) const {
    if (read.code() != StatusCode::kNotFound) {
      return false;
    }
    const std::lock_guard hold(mutex_);
    Result<std::unique_ptr<InputFile>> aside = open_moved_part(files_, path_, file_->size_bytes());
    if (aside.is_ok()) {
      file_ = *std::move(aside);
    }
    return aside.is_ok();
  }

  FileSystem& files_;
  const std::string path_;
  const std::string shown_path_;  // A store of objects shows the URI.
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const InputFile> file_;  // Guarded by mutex_; shared with who reads while it moves.
};

}  // namespace

ListedParts::ListedParts(FileSystem& files, const std::vector<FileInfo>& inputs) : files_(files) {
  for (const FileInfo& input : inputs) {
    if (PartName::parse(file_name(input.path))) {
      sizes_.emplace(input.path, input.size_bytes);
    }
  }
}

Result<std::unique_ptr<InputFile>> ListedParts::open_input(const std::string& path) {
  const auto part = sizes_.find(path);
  Result<std::unique_ptr<InputFile>> file = files_.open_input(path);
  if (part == sizes_.end()) {
    return file;
  }
  if (file.status().code() == StatusCode::kNotFound) {
    Result<std::unique_ptr<InputFile>> aside = open_moved_part(files_, path, part->second);
    return aside.status().code() == StatusCode::kNotFound ? std::move(file) : std::move(aside);
  }
  DARKROOM_RETURN_IF_ERROR(file.status());
  return std::unique_ptr<InputFile>(std::make_unique<MovingPart>(files_, path, *std::move(file)));
}

}  // namespace darkroom
