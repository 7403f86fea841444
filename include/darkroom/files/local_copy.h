#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "darkroom/files/publication.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// A folder on this machine's disk that goes with its owner, or, when its process died, with the next one that makes such a folder.
class ScratchFolder {
 public:
  /// Makes one below `parent`, which only this account may enter; empty: below $TMPDIR, else /tmp. Errors: those of the file system.
  static Result<ScratchFolder> make(const std::string& parent = {});

  const std::string& path() const { return folder_->folder(); }

 private:
  explicit ScratchFolder(std::unique_ptr<FolderPublication> folder) : folder_(std::move(folder)) {}

  std::unique_ptr<FolderPublication> folder_;  // Never published, so that its temporary goes with it.
};

struct CopyOptions {
  /// Which files of a folder, by their paths within it; none: all. Names that begin with "_tmp" are never copied.
  std::function<bool(const std::string& name)> takes = {};
  /// How many bytes of a file are wanted, from its begin on; the rest becomes a hole of the right size. None: all.
  std::function<Result<int64_t>(const std::string& name, const InputFile& file)> wanted_bytes = {};
  std::stop_token stop = {};
};

/// Whether `name` is a plain path within a folder: not "../x", "..", "/x", "a//b" or "".
bool is_name_within(const std::string& name);
/// For names that a store lists, which may hold what no disk holds: kFailedPrecondition where `name` is none within a folder. `object`:
/// what the message names.
Status check_name_within(const std::string& name, const Location& object);

/// Copies the files below a folder of any store into a folder of this machine, made when it is missing, or one file to a path, large pieces
/// by several requests at once. What is there under the names is replaced. Errors: kNotFound (no such folder), kUnavailable (an object that
/// is shorter than its store said), kCancelled, those of store and disk.
Status copy_tree_here(const Location& from, const std::string& folder, const CopyOptions& options = {});
Status copy_file_here(const Location& from, const std::string& path, const CopyOptions& options = {});

/// Writes a local file as an object, first wins, or every file below a local folder under its name in `to` (that of a PendingFolder).
/// Errors: kCancelled, those of disk and store.
Result<PublishOutcome> copy_file_there(const std::string& path, const Location& to, const std::stop_token& stop = {});
Status copy_tree_there(const std::string& folder, const Location& to, const std::stop_token& stop = {});

/// Publishes a local folder as `to`, whose record is the file `record_name` in it: written last, so that whoever sees it sees all.
/// Errors: as above.
Result<PublishOutcome> publish_tree_there(const std::string& folder, const std::string& record_name, const Location& to,
                                          const std::stop_token& stop = {});

/// What lies at a place as files of this machine, for what maps files or reads many small ones: the place itself where it is local, else a
/// copy in a scratch folder that goes with this object. Files that are mapped then stay readable.
class LocalCopy {
 public:
  /// A file or a folder. Errors: kNotFound, copy_tree_here's.
  static Result<LocalCopy> fetch(const Location& place, const CopyOptions& options = {});

  const std::string& path() const { return path_; }
  bool is_copy() const { return scratch_.has_value(); }

 private:
  explicit LocalCopy(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::optional<ScratchFolder> scratch_;
};

}  // namespace darkroom
