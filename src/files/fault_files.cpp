#include "darkroom/files/fault_files.h"

namespace darkroom {

namespace {

Status status_of_fault(Fault fault, const std::string& path) {
  switch (fault) {
    case Fault::kNoSpace:
    case Fault::kShortWrite:
      return Status::resource_exhausted("injected fault: no space left on device (path):", path);
    case Fault::kInputOutput:
      return Status::unavailable("injected fault: input/output error (path):", path);
    case Fault::kDeath:
      break;
  }
  return Status::unavailable("injected fault: the process is dead (path):", path);
}

}  // namespace

class FaultyOutputFile final : public OutputFile {
 public:
  FaultyOutputFile(FaultInjectingFileSystem& files, std::unique_ptr<OutputFile> file) : files_(files), file_(std::move(file)) {}

  const std::string& path() const override { return file_->path(); }
  Status write(std::span<const std::byte> bytes) override {
    DARKROOM_RETURN_IF_ERROR(failure_);
    const std::optional<Fault> fault = files_.next_fault();
    if (fault == Fault::kShortWrite) {
      DARKROOM_RETURN_IF_ERROR(file_->write(bytes.first(bytes.size() / 2)));
    }
    return fault ? failure_ = status_of_fault(*fault, path()) : file_->write(bytes);
  }
  Status sync() override {
    DARKROOM_RETURN_IF_ERROR(failure_);
    const std::optional<Fault> fault = files_.next_fault();
    return fault ? failure_ = status_of_fault(*fault, path()) : file_->sync();
  }
  Status close() override {
    DARKROOM_RETURN_IF_ERROR(failure_);
    const std::optional<Fault> fault = files_.next_fault();
    return fault ? failure_ = status_of_fault(*fault, path()) : file_->close();
  }

 private:
  FaultInjectingFileSystem& files_;
  std::unique_ptr<OutputFile> file_;
  Status failure_;  // Sticks, as the interface promises.
};

void FaultInjectingFileSystem::fail_call(int64_t call, Fault fault) {
  const std::lock_guard hold(mutex_);
  num_calls_ = 0;
  fault_call_ = call;
  fault_ = fault;
  dead_ = false;
}

void FaultInjectingFileSystem::heal() { fail_call(-1, Fault::kNoSpace); }

int64_t FaultInjectingFileSystem::num_calls() const {
  const std::lock_guard hold(mutex_);
  return num_calls_;
}

std::optional<Fault> FaultInjectingFileSystem::next_fault() {
  const std::lock_guard hold(mutex_);
  const bool strikes = num_calls_++ == fault_call_;
  dead_ = dead_ || (strikes && fault_ == Fault::kDeath);
  if (dead_) {
    return Fault::kDeath;
  }
  return strikes ? std::optional<Fault>(fault_) : std::nullopt;
}

Status FaultInjectingFileSystem::check_alive() const {
  const std::lock_guard hold(mutex_);
  return dead_ ? status_of_fault(Fault::kDeath, "") : Status::ok();
}

Result<std::unique_ptr<InputFile>> FaultInjectingFileSystem::open_input(const std::string& path) {
  DARKROOM_RETURN_IF_ERROR(check_alive());
  return files_.open_input(path);
}

Result<std::unique_ptr<OutputFile>> FaultInjectingFileSystem::create(const std::string& path) {
  if (const std::optional<Fault> fault = next_fault()) {
    return status_of_fault(*fault, path);
  }
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, files_.create(path));
  return std::unique_ptr<OutputFile>(std::make_unique<FaultyOutputFile>(*this, std::move(file)));
}

Result<std::unique_ptr<OutputFile>> FaultInjectingFileSystem::open_append(const std::string& path) {
  if (const std::optional<Fault> fault = next_fault()) {
    return status_of_fault(*fault, path);
  }
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, files_.open_append(path));
  return std::unique_ptr<OutputFile>(std::make_unique<FaultyOutputFile>(*this, std::move(file)));
}

Result<FileInfo> FaultInjectingFileSystem::stat(const std::string& path) {
  DARKROOM_RETURN_IF_ERROR(check_alive());
  return files_.stat(path);
}

Result<std::vector<FileInfo>> FaultInjectingFileSystem::list(const std::string& folder) {
  DARKROOM_RETURN_IF_ERROR(check_alive());
  return files_.list(folder);
}

Status FaultInjectingFileSystem::create_folders(const std::string& folder) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, folder) : files_.create_folders(folder);
}

Status FaultInjectingFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, to) : files_.rename_no_replace(from, to);
}

Status FaultInjectingFileSystem::rename_replace(const std::string& from, const std::string& to) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, to) : files_.rename_replace(from, to);
}

Status FaultInjectingFileSystem::remove_file(const std::string& path) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, path) : files_.remove_file(path);
}

Status FaultInjectingFileSystem::remove_tree(const std::string& path) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, path) : files_.remove_tree(path);
}

Status FaultInjectingFileSystem::sync_file(const std::string& path) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, path) : files_.sync_file(path);
}

Status FaultInjectingFileSystem::sync_folder(const std::string& folder) {
  const std::optional<Fault> fault = next_fault();
  return fault ? status_of_fault(*fault, folder) : files_.sync_folder(folder);
}

Result<WriteTarget> FaultInjectingFileSystem::find_write_target(const std::string& path) {
  DARKROOM_RETURN_IF_ERROR(check_alive());
  return files_.find_write_target(path);
}

Result<std::unique_ptr<FileLock>> FaultInjectingFileSystem::try_lock(const std::string& path) {
  DARKROOM_RETURN_IF_ERROR(check_alive());
  return files_.try_lock(path);
}

}  // namespace darkroom
