#pragma once

#include <functional>
#include <memory>
#include <string>

#include "darkroom/files/file_system.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// The one commit primitive for files (docs/formats/commit.md): bytes are written to OUT/_tmp/NAME.UNIQUE and become
/// visible as OUT/NAME in one atomic step, the first writer wins. A visible object is immutable and whole.
/// The temporary is locked while the object lives, so sweep_unpublished of another process leaves it alone.
/// Thread safety: one object, one thread; any number of objects and processes may race for one name.
class Publication {
 public:
  /// Makes the folders and the temporary. REQUIRES: `name` holds no slash.
  static Result<std::unique_ptr<Publication>> begin(FileSystem& files, const std::string& output_folder, const std::string& name);
  /// Removes the temporary when nothing was published.
  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  /// Takes the bytes. REQUIRES: publish() was not called.
  OutputFile& file();
  /// Where the object will be visible.
  const std::string& path() const { return path_; }
  /// fsync of the file, rename without replace, fsync of the folder. On an error nothing of ours is visible, or it is
  /// visible and whole (only its name may not be durable yet); begin a new one, never this one again.
  /// When the name is taken, `may_replace` is asked whether what stands there gives way, while no other publication can be
  /// replacing it; then ours takes its place in one atomic step. Errors: also kUnavailable (another publication is about to),
  /// kFailedPrecondition (what stands there cannot be locked).
  /// REQUIRES: called once.
  Result<PublishOutcome> publish(const std::function<Result<bool>()>& may_replace = {});

 private:
  Status replace(const std::function<Result<bool>()>& may_replace);

  Publication(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  FileSystem& files_;
  std::string path_;
  std::string temporary_;  // Empty once it is published or removed.
  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<FileLock> lock_;  // Null where the file system has no locks.
};

/// The same for a folder (checkpoints): fill folder(), then publish().
class FolderPublication {
 public:
  /// REQUIRES: `name` holds no slash.
  static Result<std::unique_ptr<FolderPublication>> begin(FileSystem& files, const std::string& output_folder, const std::string& name);
  /// The same with OUT/_tmp.NAME.UNIQUE for its temporary folder: no OUT/_tmp is left in a folder that is not ours. First removes
  /// what dead writers of NAME left there.
  static Result<std::unique_ptr<FolderPublication>> begin_beside(FileSystem& files, const std::string& output_folder,
                                                                 const std::string& name);
  /// Removes the temporary folder when nothing was published.
  ~FolderPublication();
  FolderPublication(const FolderPublication&) = delete;
  FolderPublication& operator=(const FolderPublication&) = delete;

  /// The temporary folder to write into.
  const std::string& folder() const { return temporary_; }
  /// As publish_folder. REQUIRES: called once; every file in folder() is closed.
  Result<PublishOutcome> publish();

 private:
  static Result<std::unique_ptr<FolderPublication>> begin_at(FileSystem& files, const std::string& output_folder, const std::string& name,
                                                             const std::string& prefix);
  FolderPublication(FileSystem& files, std::string output_folder, std::string name)
      : files_(files), output_folder_(std::move(output_folder)), name_(std::move(name)) {}

  FileSystem& files_;
  std::string output_folder_;
  std::string name_;
  std::string temporary_;
  std::unique_ptr<FileLock> lock_;
  bool published_ = false;
};

/// Makes `temporary_folder` visible as OUT/NAME: fsync of every file and folder in it, rename without replace, fsync of
/// OUT. Not empty, and on OUT's file system. On kAlreadyThere and on an error the temporary folder is still there.
Result<PublishOutcome> publish_folder(FileSystem& files, const std::string& output_folder, const std::string& temporary_folder,
                                      const std::string& name);

/// Takes OUT/NAME, a folder, away: in one step, also for a power loss, nothing of it is visible any more, and then its
/// bytes go. What a call that was cut off leaves is in OUT/_tmp/, for sweep_unpublished.
/// Errors: kNotFound (there is none), those of the file system.
Status remove_published_folder(FileSystem& files, const std::string& output_folder, const std::string& name);

/// Removes what dead writers left in OUT/_tmp/ and beside it. Safe at any time: what a live writer holds, here or in
/// another process, stays. Fine when OUT does not exist.
Status sweep_unpublished(FileSystem& files, const std::string& output_folder);

}  // namespace darkroom
