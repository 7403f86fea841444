#include "posix_pending.h"

#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "temporary.h"

namespace darkroom {

namespace {

class PosixObject final : public PendingObject {
 public:
  PosixObject(Store& store, FileSystem& files, std::string path, Temporary made)
      : store_(store), files_(files), path_(std::move(path)), made_(std::move(made)) {}

  ~PosixObject() override {
    made_.file.reset();
    if (!made_.path.empty()) {
      (void)files_.remove_file(made_.path);  // Best effort: what stays is invisible and swept by the next run.
    }
  }

  std::string describe() const override { return store_.uri_of(path_); }
  int64_t num_bytes() const override { return num_bytes_; }

  Status write(std::span<const std::span<const std::byte>> pieces) override {
    DARKROOM_CHECK(made_.file != nullptr, "the object was already published (object):", describe());
    for (const std::span<const std::byte> piece : pieces) {
      DARKROOM_RETURN_IF_ERROR(made_.file->write(piece));
      num_bytes_ += static_cast<int64_t>(piece.size());
    }
    return Status::ok();
  }

  Result<PublishOutcome> publish() override {
    DARKROOM_CHECK(made_.file != nullptr, "the object was already published (object):", describe());
    const std::unique_ptr<OutputFile> file = std::move(made_.file);
    DARKROOM_RETURN_IF_ERROR(file->sync());
    DARKROOM_RETURN_IF_ERROR(file->close());
    Status renamed = files_.rename_no_replace(made_.path, path_);
    if (renamed.code() == StatusCode::kFailedPrecondition) {
      DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, store_.first_wins(parent_folder(path_)));
      return how == FirstWins::kCommitRecord ? publish_recorded() : renamed;
    }
    if (renamed.code() == StatusCode::kNotFound) {
      // A network file system that lost its reply and asked again finds the temporary gone: whose object it is, its reader will see.
      DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files_.exists(path_));
      renamed = is_there ? Status::already_exists("an object has the name (path):", path_) : renamed;
    }
    if (renamed.is_ok()) {
      forget_temporary();
    }
    return finish_rename(files_, renamed, parent_folder(path_));
  }

 private:
  Result<PublishOutcome> publish_recorded() {
    const auto complete = [this](const Location& object, const CommitRecord& record) { return complete_temporary(files_, object, record); };
    const CommitRecord mine{.contender = file_name(made_.path)};
    DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, publish_by_record({.store = &store_, .path = path_}, mine, complete));
    if (outcome == PublishOutcome::kPublished) {
      forget_temporary();
    }
    DARKROOM_RETURN_IF_ERROR(files_.sync_folder(parent_folder(path_)));
    return outcome;
  }

  void forget_temporary() {
    made_.path.clear();
    made_.lock.reset();  // It went with the file.
  }

  Store& store_;
  FileSystem& files_;
  std::string path_;
  Temporary made_;  // Its path is empty once it is published.
  int64_t num_bytes_ = 0;
};

/// Removes what objects on their way left in a folder that is about to be seen.
Status remove_leftovers(FileSystem& files, const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(folder));
  for (const FileInfo& entry : entries) {
    const std::string name = file_name(entry.path);
    if (name == kTemporaryFolder || name.starts_with(kTemporaryPrefix)) {
      DARKROOM_RETURN_IF_ERROR(files.remove_tree(entry.path));
    } else if (entry.is_folder) {
      DARKROOM_RETURN_IF_ERROR(remove_leftovers(files, entry.path));
    }
  }
  return Status::ok();
}

class PosixFolder final : public PendingFolder {
 public:
  PosixFolder(Store& store, FileSystem& files, std::string path, TemporaryTree made)
      : store_(store), files_(files), path_(std::move(path)), made_(std::move(made)) {}

  ~PosixFolder() override {
    if (!made_.path.empty()) {
      (void)files_.remove_tree(made_.path);  // Best effort: what stays is invisible and swept by the next run.
    }
  }

  Location folder() const override { return {.store = &store_, .path = made_.path}; }

  Result<PublishOutcome> publish(const std::string& record_name, std::string_view record) override {
    DARKROOM_CHECK(!is_spent_, "the folder was already published (path):", path_);
    is_spent_ = true;
    DARKROOM_RETURN_IF_ERROR(remove_leftovers(files_, made_.path));
    DARKROOM_RETURN_IF_ERROR(record_name.empty() ? Status::ok() : write_record(record_name, record));
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files_.list(made_.path));
    if (entries.empty()) {
      return Status::failed_precondition("a folder that holds nothing cannot be published (path):", path_);
    }
    DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, publish_folder(files_, parent_folder(path_), made_.path, file_name(path_)));
    if (outcome == PublishOutcome::kPublished) {
      made_.path.clear();
    }
    return outcome;
  }

 private:
  Status write_record(const std::string& name, std::string_view record) {
    check_plain_name(name);
    DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, files_.create(join_path(made_.path, name)));
    DARKROOM_RETURN_IF_ERROR(file->write_text(record));
    return file->close();
  }

  Store& store_;
  FileSystem& files_;
  std::string path_;
  TemporaryTree made_;  // Its path is empty once it is published.
  bool is_spent_ = false;
};

/// Best effort: the next one tries again.
void sweep_folders_of(FileSystem& files, const std::string& folder, const std::string& name) {
  const Result<std::vector<FileInfo>> entries = files.list(folder);
  for (const FileInfo& entry : entries.is_ok() ? *entries : std::vector<FileInfo>()) {
    if (is_temporary_beside(file_name(entry.path), name)) {
      const Result<std::optional<HeldLeftover>> held = hold_if_dead(files, entry.path, std::chrono::sys_seconds::min());
      if (held.is_ok() && held->has_value()) {
        (void)files.remove_tree(entry.path);
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<PendingObject>> begin_posix_object(Store& store, FileSystem& files, const std::string& folder,
                                                          const std::string& name) {
  check_plain_name(name);
  DARKROOM_ASSIGN_OR_RETURN(Temporary made, make_temporary(files, join_path(folder, kTemporaryFolder), name));
  return std::unique_ptr<PendingObject>(std::make_unique<PosixObject>(store, files, join_path(folder, name), std::move(made)));
}

Result<std::unique_ptr<PendingFolder>> begin_posix_folder(Store& store, FileSystem& files, const std::string& folder,
                                                          const std::string& name) {
  check_plain_name(name);
  sweep_folders_of(files, folder, name);
  DARKROOM_ASSIGN_OR_RETURN(TemporaryTree made, make_temporary_tree(files, join_path(folder, kTemporaryPrefix), name));
  return std::unique_ptr<PendingFolder>(std::make_unique<PosixFolder>(store, files, join_path(folder, name), std::move(made)));
}

Result<Completion> complete_temporary(FileSystem& files, const Location& object, const CommitRecord& record) {
  const std::string folder = parent_folder(object.path);
  const std::string temporary = join_path(join_path(folder, kTemporaryFolder), record.contender);
  Completion completion = Completion::kDone;
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(object.path));
  if (is_there) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_pending, files.exists(temporary));
    completion = is_pending ? Completion::kAnotherThere : Completion::kDone;
  } else if (const Status renamed = files.rename_replace(temporary, object.path); renamed.code() == StatusCode::kNotFound) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_renamed, files.exists(object.path));  // By another who completed it.
    if (!is_renamed) {
      return Completion::kGone;
    }
  } else {
    DARKROOM_RETURN_IF_ERROR(renamed);
  }
  DARKROOM_RETURN_IF_ERROR(files.sync_folder(folder));
  return completion;
}

}  // namespace darkroom
