#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/status.h"

namespace darkroom {

struct FileInfo {
  std::string path = {};
  int64_t size_bytes = 0;  ///< 0 for a folder.
  bool is_folder = false;

  bool operator==(const FileInfo&) const = default;
};

/// Where the bytes for a path have to go.
struct WriteTarget {
  std::string path = {};   ///< What stands at the end of the path's links; it need not exist.
  bool is_stream = false;  ///< A device, pipe, socket or open descriptor: takes bytes as they come and is never replaced.
};

/// Bytes of a file: [offset, offset + num_bytes).
struct ByteRange {
  int64_t offset = 0;
  int64_t num_bytes = 0;

  bool operator==(const ByteRange&) const = default;
};

/// A file open for reading at any place. Thread safety: every method may be called from any thread at any time.
class InputFile {
 public:
  virtual ~InputFile() = default;
  virtual const std::string& path() const = 0;
  /// Size when the file was opened.
  virtual int64_t size_bytes() const = 0;
  /// Fills `out` from `offset` on and returns how many bytes it read: fewer than asked only at the end of the file.
  virtual Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const = 0;
  /// Fills out[i] with ranges[i]. A store that answers slowly asks for many at once; here: one read_at each.
  /// Errors: as read_at; kCorruptData when the file ends before a range does. REQUIRES: as many buffers as ranges, each of its size.
  virtual Status read_ranges(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out) const;
  /// Whether each read is a request to a server: who reads on and on asks ahead (read_ahead.h).
  virtual bool is_remote() const { return false; }
};

/// A file open for writing at its end. A failed write, sync or close spoils the file for good: every later call returns
/// the first failure, because after a failed fsync the kernel may have dropped the pages (discard it, write a new one).
/// The destructor closes without syncing. Thread safety: one object, one thread.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual const std::string& path() const = 0;
  virtual Status write(std::span<const std::byte> bytes) = 0;
  /// Returns when every byte written so far survives a power loss (the name may not: FileSystem::sync_folder).
  virtual Status sync() = 0;
  /// Idempotent; a closed file takes no more bytes.
  virtual Status close() = 0;

  Status write_text(std::string_view text) { return write(std::as_bytes(std::span(text))); }
};

/// Held while the object lives; released when its process dies, however it dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

/// Where files live. Paths are plain text with "/"; no method changes the working folder.
/// Errors of every method: kNotFound (no such file or folder), kAlreadyExists, kResourceExhausted (no space, quota, too
/// many open files), kFailedPrecondition (read-only, no permission, a file where a folder is needed), kUnavailable (the
/// device or store failed); each names the path. Thread safety: every method may be called from any thread.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<std::unique_ptr<InputFile>> open_input(const std::string& path) = 0;
  /// Makes a new file; kAlreadyExists when the name is taken.
  virtual Result<std::unique_ptr<OutputFile>> create(const std::string& path) = 0;
  /// Opens a file to write after its last byte; makes it when it is not there. /dev/fd/N: shares that descriptor and its offset.
  virtual Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) = 0;

  virtual Result<FileInfo> stat(const std::string& path) = 0;
  /// Follows the links at `path`, also one to nothing. Errors: also kFailedPrecondition for a loop of links.
  virtual Result<WriteTarget> find_write_target(const std::string& path);
  /// The folder's entries (not those of its subfolders), in byte order of their paths, which start with `folder`.
  virtual Result<std::vector<FileInfo>> list(const std::string& folder) = 0;

  /// Makes a folder and the missing ones above it; fine when it is there. The new names survive a power loss.
  virtual Status create_folders(const std::string& folder) = 0;
  /// One atomic step; kAlreadyExists when `to` is taken, and then nothing has changed. Files and folders.
  virtual Status rename_no_replace(const std::string& from, const std::string& to) = 0;
  /// One atomic step; a file at `to` is replaced. Files only.
  virtual Status rename_replace(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  /// Removes a file or a folder with all that it holds; fine when it is not there.
  virtual Status remove_tree(const std::string& path) = 0;

  /// Makes a closed file's bytes survive a power loss.
  virtual Status sync_file(const std::string& path) = 0;
  /// Makes the names in a folder (new, renamed, removed) survive a power loss.
  virtual Status sync_folder(const std::string& folder) = 0;

  /// Locks a file or folder against every other lock on it, of this process or another; a null pointer when it is held.
  /// The lock stays with the file when it is renamed. Errors: also kFailedPrecondition where locks are not supported.
  virtual Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) = 0;

  Result<bool> exists(const std::string& path);
  /// Every file (no folders) under `folder` at any depth, in byte order of their paths.
  /// Errors: also kFailedPrecondition deeper than 64 folders (a loop of links).
  Result<std::vector<FileInfo>> list_tree(const std::string& folder);
};

/// The machine's own files (POSIX).
FileSystem& local_files();

/// The whole file. REQUIRES: it fits in memory.
Result<std::string> read_file(FileSystem& files, const std::string& path);

/// Replaces a file by what `fill` writes, in one atomic step: whatever the instant of a crash, `path` holds the old bytes or
/// the new ones, and the new ones once this returns ok. Makes the missing folders above it. A link stays: what it leads to
/// is replaced, where that lies. A device, a pipe or an open descriptor (/dev/stdout) is written to as it is.
/// `fill` leaves syncing and closing to this function.
Status replace_file_atomic(FileSystem& files, const std::string& path, const std::function<Status(OutputFile&)>& fill);

/// The same with bytes that are in memory.
Status write_file_atomic(FileSystem& files, const std::string& path, std::string_view bytes);

}  // namespace darkroom
