#include "darkroom/files/publication.h"

#include "darkroom/files/paths.h"
#include "temporary.h"

namespace darkroom {

namespace {

/// Removes a leftover whose writer is dead. One that is locked, or that is gone by now, is none of ours.
Status sweep_one(FileSystem& files, const std::string& path) {
  const Result<std::unique_ptr<FileLock>> lock = files.try_lock(path);
  if (!lock.is_ok()) {
    const StatusCode code = lock.status().code();
    const bool unknown_writer = code == StatusCode::kNotFound || code == StatusCode::kFailedPrecondition;
    return unknown_writer ? Status::ok() : lock.status();
  }
  return *lock == nullptr ? Status::ok() : files.remove_tree(path);
}

}  // namespace

Result<std::unique_ptr<Publication>> Publication::begin(FileSystem& files, const std::string& output_folder, const std::string& name) {
  check_plain_name(name);
  DARKROOM_ASSIGN_OR_RETURN(Temporary made, make_temporary(files, join_path(output_folder, kTemporaryFolder), name));
  std::unique_ptr<Publication> publication(new Publication(files, join_path(output_folder, name)));
  publication->temporary_ = std::move(made.path);
  publication->file_ = std::move(made.file);
  publication->lock_ = std::move(made.lock);
  return publication;
}

Publication::~Publication() {
  file_.reset();
  if (!temporary_.empty()) {
    (void)files_.remove_file(temporary_);  // Best effort: what stays is invisible and swept by the next run.
  }
}

OutputFile& Publication::file() {
  DARKROOM_CHECK(file_ != nullptr, "the file was already published (path):", path_);
  return *file_;
}

Result<PublishOutcome> Publication::publish(const std::function<Result<bool>()>& may_replace) {
  OutputFile& output = file();
  const std::unique_ptr<OutputFile> closes_at_return = std::move(file_);
  DARKROOM_RETURN_IF_ERROR(output.sync());
  DARKROOM_RETURN_IF_ERROR(output.close());
  Status renamed = files_.rename_no_replace(temporary_, path_);
  if (may_replace && renamed.code() == StatusCode::kAlreadyExists) {
    renamed = replace(may_replace);
  }
  if (renamed.is_ok()) {
    temporary_.clear();
    lock_.reset();  // It went with the file: whoever replaces that one must be able to take it.
  }
  return finish_rename(files_, renamed, parent_folder(path_));
}

// The lock on what stands there keeps a second publication from replacing ours, or what a third one put there meanwhile.
Status Publication::replace(const std::function<Result<bool>()>& may_replace) {
  std::unique_ptr<FileLock> lock;
  DARKROOM_ASSIGN_OR_RETURN(const bool is_free, lock_where_possible(files_, path_, lock));
  DARKROOM_ASSIGN_OR_RETURN(const bool gives_way, may_replace());
  if (!gives_way) {
    return Status::already_exists("what stands under the name stays (path):", path_);
  }
  if (is_free && lock == nullptr) {
    return Status::failed_precondition(
        "this file cannot be locked, so nothing may take its place; remove it and run the same command again (path):", path_);
  }
  if (!is_free) {
    return Status::unavailable("another process is replacing this file just now; run the same command again (path):", path_);
  }
  return files_.rename_replace(temporary_, path_);
}

Result<std::unique_ptr<FolderPublication>> FolderPublication::begin(FileSystem& files, const std::string& output_folder,
                                                                    const std::string& name) {
  return begin_at(files, output_folder, name, join_path(join_path(output_folder, kTemporaryFolder), ""));
}

Result<std::unique_ptr<FolderPublication>> FolderPublication::begin_beside(FileSystem& files, const std::string& output_folder,
                                                                           const std::string& name) {
  const auto entries = files.list(output_folder);
  for (const FileInfo& entry : entries.is_ok() ? *entries : std::vector<FileInfo>()) {
    if (is_temporary_beside(file_name(entry.path), name)) {
      (void)sweep_one(files, entry.path);  // Best effort: the next one tries again.
    }
  }
  return begin_at(files, output_folder, name, join_path(output_folder, kTemporaryPrefix));
}

Result<std::unique_ptr<FolderPublication>> FolderPublication::begin_at(FileSystem& files, const std::string& output_folder,
                                                                       const std::string& name, const std::string& prefix) {
  check_plain_name(name);
  std::unique_ptr<FolderPublication> publication(new FolderPublication(files, output_folder, name));
  DARKROOM_ASSIGN_OR_RETURN(TemporaryTree made, make_temporary_tree(files, prefix, name));
  publication->temporary_ = std::move(made.path);
  publication->lock_ = std::move(made.lock);
  return publication;
}

FolderPublication::~FolderPublication() {
  if (!published_ && !temporary_.empty()) {
    (void)files_.remove_tree(temporary_);  // Best effort: what stays is invisible and swept by the next run.
  }
}

Result<PublishOutcome> FolderPublication::publish() {
  Result<PublishOutcome> outcome = publish_folder(files_, output_folder_, temporary_, name_);
  published_ = outcome.is_ok() && *outcome == PublishOutcome::kPublished;
  return outcome;
}

Result<PublishOutcome> publish_folder(FileSystem& files, const std::string& output_folder, const std::string& temporary_folder,
                                      const std::string& name) {
  check_plain_name(name);
  DARKROOM_RETURN_IF_ERROR(files.create_folders(output_folder));
  DARKROOM_RETURN_IF_ERROR(sync_tree(files, temporary_folder));
  return finish_rename(files, files.rename_no_replace(temporary_folder, join_path(output_folder, name)), output_folder);
}

Status remove_published_folder(FileSystem& files, const std::string& output_folder, const std::string& name) {
  check_plain_name(name);
  const std::string temporaries = join_path(output_folder, kTemporaryFolder), removed = join_path(temporaries, name);
  DARKROOM_RETURN_IF_ERROR(files.create_folders(temporaries));
  DARKROOM_RETURN_IF_ERROR(files.remove_tree(removed));
  DARKROOM_RETURN_IF_ERROR(files.rename_no_replace(join_path(output_folder, name), removed));
  // Before its files go: a power loss must not bring a half of it back.
  for (const std::string& folder : {temporaries, output_folder}) {
    DARKROOM_RETURN_IF_ERROR(files.sync_folder(folder));
  }
  return files.remove_tree(removed);
}

Status sweep_unpublished(FileSystem& files, const std::string& output_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> leftovers, list_leftovers(files, output_folder));
  for (const FileInfo& leftover : leftovers) {
    DARKROOM_RETURN_IF_ERROR(sweep_one(files, leftover.path).with_context("sweeping what an interrupted run left"));
  }
  return Status::ok();
}

namespace {

// What cannot be replaced takes the bytes as they come; most of it cannot be synced.
Status write_to_stream(FileSystem& files, const std::string& path, const std::function<Status(OutputFile&)>& fill) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> stream, files.open_append(path));
  DARKROOM_RETURN_IF_ERROR(fill(*stream));
  return stream->close();
}

}  // namespace

Status replace_file_atomic(FileSystem& files, const std::string& path, const std::function<Status(OutputFile&)>& fill) {
  DARKROOM_ASSIGN_OR_RETURN(const WriteTarget target, files.find_write_target(path));
  if (target.is_stream) {
    return write_to_stream(files, target.path, fill);
  }
  const std::string folder = parent_folder(target.path);
  DARKROOM_ASSIGN_OR_RETURN(Temporary made, make_temporary(files, folder, std::string(kTemporaryPrefix) + file_name(target.path)));
  RemoveAtReturn removal{.files = files, .temporary = made};
  DARKROOM_RETURN_IF_ERROR(fill(*made.file));
  DARKROOM_RETURN_IF_ERROR(made.file->sync());
  DARKROOM_RETURN_IF_ERROR(made.file->close());
  DARKROOM_RETURN_IF_ERROR(files.rename_replace(made.path, target.path));
  removal.is_renamed = true;
  return files.sync_folder(folder);
}

Status write_file_atomic(FileSystem& files, const std::string& path, std::string_view bytes) {
  return replace_file_atomic(files, path, [&](OutputFile& file) { return file.write_text(bytes); });
}

}  // namespace darkroom
