#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "darkroom/files/paths.h"
#include "support/forwarding_files.h"

namespace darkroom {

/// The machine's files; the logs of a run find no room for the steps from `first` to `last`, each of which has one line of metrics, before
/// its events. As a disk does, one takes half a record first. Thread safety: none.
class FullDisk final : public ForwardingFiles {
 public:
  static Status no_room() { return Status::resource_exhausted("no space left on device"); }

  FullDisk(int first, int last, Status failure = no_room())
      : ForwardingFiles(local_files()), first_(first), last_(last), failure_(std::move(failure)) {}

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override { return opened(ForwardingFiles::create(path)); }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override { return opened(ForwardingFiles::open_append(path)); }

 private:
  class File final : public OutputFile {
   public:
    File(FullDisk& disk, std::unique_ptr<OutputFile> file) : disk_(disk), file_(std::move(file)) {}

    const std::string& path() const override { return file_->path(); }
    Status write(std::span<const std::byte> bytes) override {
      DARKROOM_RETURN_IF_ERROR(spoiled_);
      disk_.num_lines_ += file_name(path()) == "metrics.jsonl" ? 1 : 0;
      if (disk_.num_lines_ < disk_.first_ || disk_.num_lines_ > disk_.last_) {
        return file_->write(bytes);
      }
      DARKROOM_RETURN_IF_ERROR(file_->write(bytes.first(bytes.size() / 2)));
      spoiled_ = disk_.failure_;
      return spoiled_;
    }
    Status sync() override { return spoiled_.is_ok() ? file_->sync() : spoiled_; }
    Status close() override { return spoiled_.is_ok() ? file_->close() : spoiled_; }

   private:
    FullDisk& disk_;
    std::unique_ptr<OutputFile> file_;
    Status spoiled_;  // For good, as the interface promises.
  };

  Result<std::unique_ptr<OutputFile>> opened(Result<std::unique_ptr<OutputFile>> file) {
    const bool is_log = file.is_ok() && ((*file)->path().ends_with(".jsonl") || (*file)->path().find("tfevents") != std::string::npos);
    return is_log ? std::unique_ptr<OutputFile>(std::make_unique<File>(*this, *std::move(file))) : std::move(file);
  }

  const int first_;
  const int last_;
  const Status failure_;
  int num_lines_ = 0;
};

}  // namespace darkroom
