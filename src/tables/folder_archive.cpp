#include "darkroom/tables/folder_archive.h"

#include <arrow/util/compression.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/tables/tar_writer.h"

namespace darkroom {
namespace {

// Weights are as good as random: a higher level takes three times as long for one percent.
constexpr int kLevel = 1;
constexpr size_t kOutputBytes = size_t{1} << 20;

Status compressor_failure(const arrow::Status& status) { return Status::internal("gzip failed:", status.ToString()); }

/// What is written to it goes compressed into a file.
class GzipStream {
 public:
  static Result<std::unique_ptr<GzipStream>> open(OutputFile& file) {
    auto codec = arrow::util::Codec::Create(arrow::Compression::GZIP, kLevel);
    if (!codec.ok()) {
      return compressor_failure(codec.status());
    }
    auto compressor = (*codec)->MakeCompressor();
    if (!compressor.ok()) {
      return compressor_failure(compressor.status());
    }
    return std::unique_ptr<GzipStream>(new GzipStream(file, *std::move(compressor)));
  }

  Status write(std::span<const std::byte> bytes) {
    const auto* input = reinterpret_cast<const uint8_t*>(bytes.data());
    for (auto left = static_cast<int64_t>(bytes.size()); left > 0;) {
      const auto done = compressor_->Compress(left, input, static_cast<int64_t>(output_.size()), output_.data());
      if (!done.ok()) {
        return compressor_failure(done.status());
      }
      DARKROOM_RETURN_IF_ERROR(take(done->bytes_written));
      input += done->bytes_read;
      left -= done->bytes_read;
    }
    return Status::ok();
  }

  Status finish() {
    for (bool has_more = true; has_more;) {
      const auto done = compressor_->End(static_cast<int64_t>(output_.size()), output_.data());
      if (!done.ok()) {
        return compressor_failure(done.status());
      }
      DARKROOM_RETURN_IF_ERROR(take(done->bytes_written));
      has_more = done->should_retry;
    }
    return Status::ok();
  }

 private:
  GzipStream(OutputFile& file, std::shared_ptr<arrow::util::Compressor> compressor)
      : file_(file), compressor_(std::move(compressor)), output_(kOutputBytes) {}

  Status take(int64_t num_bytes) { return file_.write(std::as_bytes(std::span(output_).first(static_cast<size_t>(num_bytes)))); }

  OutputFile& file_;
  std::shared_ptr<arrow::util::Compressor> compressor_;  // Shared: as Arrow hands it out.
  std::vector<uint8_t> output_;
};

Status write_members(FileSystem& files, const std::string& folder, TarWriter& tar, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> members, files.list_tree(folder));
  if (members.empty()) {
    return Status::not_found("there is no file to archive in the folder:", folder);
  }
  for (const FileInfo& member : members) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped while an archive was written of the folder:", folder);
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(member.path));
    DARKROOM_RETURN_IF_ERROR(tar.add_file(std::string_view(member.path).substr(folder.size() + 1), *file));
  }
  return tar.finish();
}

}  // namespace

Status write_folder_archive(FileSystem& files, const std::string& folder, const std::string& path, const std::stop_token& stop) {
  const Status taken = Status::already_exists("the output is there already; remove it or name another:", path);
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  DARKROOM_RETURN_IF_ERROR(is_there ? taken : Status::ok());
  DARKROOM_ASSIGN_OR_RETURN(const auto publication, Publication::begin(files, parent_folder(path), file_name(path)));
  DARKROOM_ASSIGN_OR_RETURN(const auto gzip, GzipStream::open(publication->file()));
  TarWriter tar([&](std::span<const std::byte> bytes) { return gzip->write(bytes); });
  DARKROOM_RETURN_IF_ERROR(write_members(files, std::string(without_trailing_slashes(folder)), tar, stop));
  DARKROOM_RETURN_IF_ERROR(gzip->finish());
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, publication->publish());
  return outcome == PublishOutcome::kPublished ? Status::ok() : taken;
}

}  // namespace darkroom
