#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/files/file_system.h"

namespace darkroom {

class Store;

/// A place in a store: resolved once from what the user names, and handed on. A value; the store outlives it.
struct Location {
  Store* store = nullptr;
  std::string path = {};  ///< In the store's own syntax.

  Location operator/(std::string_view name) const;
  Location parent() const;
  std::string name() const;
  /// For messages and records; holds no secret.
  std::string uri() const;
  Result<bool> exists() const;
};

/// What a commit did. Both mean: an object of that name is visible, whole and durable.
enum class PublishOutcome {
  kPublished,     ///< Ours is now visible.
  kAlreadyThere,  ///< Another writer was first; ours is discarded.
};

/// How publish() keeps to first-wins in a place.
enum class FirstWins {
  kAtomic,        ///< The store puts a name where none is, in one step.
  kCommitRecord,  ///< A record of exclusive creation names the one object that may take the name (commit_record.h).
  kLookBefore,    ///< The store has neither: publish() looks just before; two writers at the same instant may both succeed. Said aloud.
};

/// An object on its way. Nothing of it is visible before publish(); destroyed unpublished it takes everything back (removes the temporary,
/// aborts the upload). Thread safety: one object, one thread; any number of objects, threads, processes and machines may race for one name.
class PendingObject {
 public:
  virtual ~PendingObject() = default;
  PendingObject(const PendingObject&) = delete;
  PendingObject& operator=(const PendingObject&) = delete;

  /// The URI that it will have, for messages.
  virtual std::string describe() const = 0;
  /// Adds the pieces in order; takes or copies them before it returns. A failure spoils the object: every later call gives it again.
  virtual Status write(std::span<const std::span<const std::byte>> pieces) = 0;
  Status write(std::span<const std::byte> bytes);
  Status write_text(std::string_view text);
  /// How many bytes were written.
  virtual int64_t num_bytes() const = 0;
  /// Makes the object visible, first wins (docs/formats/commit.md). On an error nothing of ours is visible, or it is visible and whole
  /// (only its name may not be durable yet); begin a new one, never this one again. REQUIRES: called once, last.
  virtual Result<PublishOutcome> publish() = 0;

 protected:
  PendingObject() = default;
};

/// A folder on its way (a checkpoint, a model folder): whoever sees its record, the file written last, sees all of it.
/// Destroyed unpublished it takes everything back. Thread safety: as PendingObject.
class PendingFolder {
 public:
  virtual ~PendingFolder() = default;
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;

  /// Where to write the files, through the store; not the folder's later place.
  virtual Location folder() const = 0;
  /// Writes the record and makes the folder visible under its name, first wins. With an empty `record_name` nothing is added; a store
  /// without folders refuses that. Errors and REQUIRES: as PendingObject::publish; what was written is published or given up.
  virtual Result<PublishOutcome> publish(const std::string& record_name, std::string_view record) = 0;

 protected:
  PendingFolder() = default;
};

/// What a sweep did.
struct SweepReport {
  int64_t num_temporaries = 0;  ///< Files and folders of dead writers that were removed.
  int64_t num_uploads = 0;      ///< Uploads that were aborted.
  int64_t num_completed = 0;    ///< Objects that a commit record named, made visible for their dead writers.
};

/// The end of an object.
struct ObjectTail {
  int64_t size_bytes = 0;  ///< Of the whole object.
  std::string bytes = {};
  std::string version = {};  ///< What tells the object's versions apart (an ETag), or nothing where the store has no such thing.
};

/// Objects under paths: a disk, an object store, a hub. Path syntax: "/" between names; what stands first is the store's matter ("/x" on
/// a disk, "bucket/key" on S3). Folders need not be made before something is put into them.
/// Errors of every method: kNotFound, kAlreadyExists, kFailedPrecondition (no permission, no such bucket, a store that cannot be written;
/// says what to do), kResourceExhausted (no space), kUnavailable (the store or the way to it failed; the same call may succeed later);
/// each names the object. Thread safety: every method may be called from any thread.
class Store {
 public:
  virtual ~Store() = default;

  virtual std::string_view scheme() const = 0;  ///< "file", "memory", "s3", "https", "hf".
  virtual std::string uri_of(const std::string& path) const = 0;
  virtual bool is_writable() const = 0;
  /// The path for mmap and for other programs; nothing where the objects are no files of this machine.
  virtual std::optional<std::string> local_path(const std::string& path) const;

  virtual Result<FileInfo> stat(const std::string& path) = 0;
  /// The folder's entries, in byte order of their paths.
  virtual Result<std::vector<FileInfo>> list(const std::string& folder) = 0;
  /// Every file (no folders) below `folder`, in byte order of their paths, in pages of at most 1,000 entries; `page` may stop it with an
  /// error of its own. Errors: also kCancelled when `stop` is asked for.
  virtual Status list_tree(const std::string& folder, std::stop_token stop,
                           const std::function<Status(std::span<const FileInfo>)>& page) = 0;
  /// `known_size`: from a listing, saves a store the question.
  virtual Result<std::unique_ptr<InputFile>> open_input(const std::string& path, std::optional<int64_t> known_size = {}) = 0;
  /// The last `num_bytes` bytes, or all where there are fewer; one request where the store has suffix ranges.
  virtual Result<ObjectTail> read_tail(const std::string& path, int64_t num_bytes) = 0;
  /// The whole object. Errors: also kCorruptData when it holds more than `max_bytes`.
  virtual Result<std::string> read_small(const std::string& path, int64_t max_bytes = int64_t{64} << 20) = 0;

  /// REQUIRES of both: `name` is not empty and holds no slash.
  virtual Result<std::unique_ptr<PendingObject>> begin_object(const std::string& folder, const std::string& name) = 0;
  virtual Result<std::unique_ptr<PendingFolder>> begin_folder(const std::string& folder, const std::string& name) = 0;

  /// Whatever the instant of a crash, the object holds its old bytes or `bytes`; these once it returns ok.
  virtual Status replace_small(const std::string& path, std::string_view bytes) = 0;
  /// The same for bytes that rest on a look at what is there and on the time: a store that is waited for while it cannot be reached is not
  /// waited for here, because by then another may have written. kUnavailable instead.
  virtual Status replace_small_now(const std::string& path, std::string_view bytes) { return replace_small(path, bytes); }
  /// False when the name is taken; then nothing has changed. True: the object is there, whole and durable. Never half of it is seen.
  virtual Result<bool> create_small(const std::string& path, std::string_view bytes) = 0;
  /// Removes an object, but no folder of objects; fine when it is gone.
  virtual Status remove(const std::string& path) = 0;
  /// Removes all below `folder` and `folder` itself; fine when it is gone.
  virtual Status remove_tree(const std::string& folder) = 0;
  /// Gives an object another name in the same store. Can be done again after a crash: fine when `from` is gone and `to` is there.
  /// A store of objects copies, then removes: for a moment both are there, and what another writes to `to` between the look and the copy,
  /// or to `from` between the copy and the removal, is lost; let nobody else write to either name.
  /// Errors: also kAlreadyExists when `to` holds other bytes, and then nothing has changed.
  virtual Status move_object(const std::string& from, const std::string& to) = 0;
  /// The same where what `to` holds gives way. Of several processes that do it at once with one object each ends well, and the object is
  /// at `to`: nothing is removed there by its name alone.
  virtual Status move_over(const std::string& from, const std::string& to) = 0;

  /// Clears up what dead writers left below `folder`/_tmp and beside it: completes what a commit record names, removes the rest. Safe at
  /// any time: what a live writer holds, here or anywhere, stays. Where the store cannot tell the dead from the living (uploads; the files
  /// of another machine without locks), what is older than `age` at `now` counts as dead. Fine when `folder` does not exist.
  virtual Result<SweepReport> sweep(const std::string& folder, std::chrono::seconds age, std::chrono::system_clock::time_point now) = 0;
  /// The same of a folder in which nothing lies but what begin_folder made (a run's checkpoints), and to which nobody else publishes now:
  /// also what was begun within these folders. Counts and errors: as sweep.
  virtual Result<SweepReport> sweep_folders(const std::string& folder, std::chrono::seconds age,
                                            std::chrono::system_clock::time_point now) {
    return sweep(folder, age, now);
  }
  /// Of the object or folder `path` alone, in a folder in which others may write, too: what dead writers of that very name left elsewhere
  /// than on a disk, whose sweep() knows the dead. Counts and errors: as sweep.
  virtual Result<SweepReport> sweep_name(const std::string& /*path*/, std::chrono::seconds /*age*/,
                                         std::chrono::system_clock::time_point /*now*/) {
    return SweepReport{};
  }
  /// How publish() works in `folder`; finds out by trying, once a folder.
  virtual Result<FirstWins> first_wins(const std::string& folder) = 0;
};

}  // namespace darkroom
