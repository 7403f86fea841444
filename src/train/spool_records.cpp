#include "spool_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

class RecordFile final : public OutputFile {
 public:
  RecordFile(FileSystem& files, std::unique_ptr<OutputFile> file, int64_t whole_bytes, LostRecords& lost)
      : files_(files), path_(file->path()), file_(std::move(file)), whole_bytes_(whole_bytes), lost_(lost) {}

  const std::string& path() const override { return path_; }
  Status write(std::span<const std::byte> bytes) override {
    const Status written = file_->write(bytes);
    if (written.is_ok()) {
      whole_bytes_ += static_cast<int64_t>(bytes.size());
      return written;
    }
    if (written.code() != StatusCode::kResourceExhausted) {
      return written;
    }
    lost_.count(path_, written);
    return go_on();
  }
  Status sync() override { return file_->sync(); }
  Status close() override { return file_->close(); }

 private:
  // A file whose write failed takes nothing more, and may end with a part of the record. What is cut off needs no room.
  Status go_on() {
    static_cast<void>(file_->close());  // Of a file that has failed: the same failure.
    std::error_code failure;
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(whole_bytes_), failure);
    if (failure) {
      return Status::unavailable(fmt::format("cannot cut a record off that is not whole ({}):", failure.message()), path_);
    }
    DARKROOM_ASSIGN_OR_RETURN(file_, files_.open_append(path_));
    return Status::ok();
  }

  FileSystem& files_;
  const std::string path_;
  std::unique_ptr<OutputFile> file_;
  int64_t whole_bytes_;  // All of them records that were written whole.
  LostRecords& lost_;
};

}  // namespace

LostRecords::~LostRecords() {
  if (records_.empty()) {
    return;
  }
  std::vector<std::string> counts;
  for (const auto& [name, count] : records_) {
    counts.push_back(fmt::format("{}: {}", name, count));
  }
  log_warning("the spool had no room for some of what was logged, which is lost (log: records): {}", fmt::join(counts, ", "));
}

void LostRecords::count(const std::string& path, const Status& failure) {
  if (records_.empty()) {
    log_warning("the spool has no room for all that is logged; training goes on, and what is lost is counted: {}", failure.message());
  }
  ++records_[file_name(path)];
}

Result<std::unique_ptr<OutputFile>> allow_lost_records(FileSystem& files, std::unique_ptr<OutputFile> file, LostRecords* lost) {
  if (lost == nullptr) {
    return Result<std::unique_ptr<OutputFile>>(std::move(file));
  }
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, files.stat(file->path()));
  return std::unique_ptr<OutputFile>(std::make_unique<RecordFile>(files, std::move(file), info.size_bytes, *lost));
}

}  // namespace darkroom
