#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "errno_status.h"

namespace darkroom {

namespace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }
  /// Closes it; the error number of a failed close, else 0.
  int close() { return ::close(std::exchange(number_, -1)) == 0 ? 0 : errno; }

 private:
  int number_;
};

Descriptor open_descriptor(const std::string& path, int flags) {
  while (true) {
    const int number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (number >= 0 || errno != EINTR) {
      return Descriptor(number);
    }
  }
}

class LocalInputFile final : public InputFile {
 public:
  LocalInputFile(std::string path, Descriptor descriptor, int64_t size_bytes)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), size_bytes_(size_bytes) {}

  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return size_bytes_; }

  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    size_t num_read = 0;
    while (num_read < out.size()) {
      const ssize_t step =
          ::pread(descriptor_.number(), out.data() + num_read, out.size() - num_read, offset + static_cast<int64_t>(num_read));
      if (step < 0 && errno == EINTR) {
        continue;
      }
      if (step < 0) {
        return status_of_errno(errno, "read", path_);
      }
      if (step == 0) {
        break;
      }
      num_read += static_cast<size_t>(step);
    }
    return num_read;
  }

 private:
  std::string path_;
  Descriptor descriptor_;
  int64_t size_bytes_;
};

class LocalOutputFile final : public OutputFile {
 public:
  LocalOutputFile(std::string path, Descriptor descriptor) : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  const std::string& path() const override { return path_; }

  Status write(std::span<const std::byte> bytes) override {
    DARKROOM_RETURN_IF_ERROR(check_usable());
    while (!bytes.empty()) {
      const ssize_t step = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (step < 0 && errno == EINTR) {
        continue;
      }
      if (step < 0 && errno == EAGAIN) {  // A standard stream that another program has set so.
        pollfd waited{.fd = descriptor_.number(), .events = POLLOUT, .revents = 0};
        ::poll(&waited, 1, -1);
        continue;
      }
      if (step < 0) {
        return spoil(status_of_errno(errno, "write", path_));
      }
      bytes = bytes.subspan(static_cast<size_t>(step));
    }
    return Status::ok();
  }

  Status sync() override {
    DARKROOM_RETURN_IF_ERROR(check_usable());
    return ::fsync(descriptor_.number()) == 0 ? Status::ok() : spoil(status_of_errno(errno, "sync to disk", path_));
  }

  Status close() override {
    if (!failure_.is_ok() || !descriptor_.is_open()) {
      return failure_;
    }
    const int error = descriptor_.close();
    return error == 0 ? Status::ok() : spoil(status_of_errno(error, "close", path_));
  }

 private:
  Status check_usable() const {
    DARKROOM_CHECK(!failure_.is_ok() || descriptor_.is_open(), "use of a closed file (path):", path_);
    return failure_;
  }
  Status spoil(Status failure) { return failure_ = std::move(failure); }

  std::string path_;
  Descriptor descriptor_;
  Status failure_;  // The first failure; sticks.
};

class LocalLock final : public FileLock {
 public:
  explicit LocalLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

 private:
  Descriptor descriptor_;  // flock goes with the open file: closing it, or death, releases the lock.
};

FileInfo info_of(std::string path, const struct stat& status) {
  const bool is_folder = S_ISDIR(status.st_mode);
  return {.path = std::move(path), .size_bytes = is_folder ? 0 : static_cast<int64_t>(status.st_size), .is_folder = is_folder};
}

Status sync_path(const std::string& path, int flags, std::string_view doing) {
  const Descriptor descriptor = open_descriptor(path, flags);
  if (!descriptor.is_open() || ::fsync(descriptor.number()) != 0) {
    return status_of_errno(errno, doing, path);
  }
  return Status::ok();
}

/// For file systems without RENAME_NOREPLACE. link() is atomic and never replaces; a folder cannot be linked, but
/// rename() onto a folder that holds something fails, and a published folder always holds something.
Status rename_by_link(const std::string& from, const std::string& to) {
  struct stat status {};
  if (::lstat(from.c_str(), &status) != 0) {
    return status_of_errno(errno, "rename", from);
  }
  if (S_ISDIR(status.st_mode)) {
    if (::rename(from.c_str(), to.c_str()) == 0) {
      return Status::ok();
    }
    const bool taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    return status_of_errno(taken ? EEXIST : errno, "rename to", to);
  }
  if (::link(from.c_str(), to.c_str()) != 0) {
    return status_of_errno(errno == EMLINK ? EOPNOTSUPP : errno, "rename to", to);  // Some say "too many links" and mean one.
  }
  return ::unlink(from.c_str()) == 0 ? Status::ok() : status_of_errno(errno, "remove the old name", from);
}

/// The descriptor of this process that `path` (/proc/self/fd/N, /dev/fd/N) stands for, or -1.
int own_descriptor(const std::string& path) {
  const std::string name = file_name(path);
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) {
    return -1;
  }
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::canonical(parent_folder(path), failure);
  return !failure && folder == std::filesystem::canonical("/proc/self/fd", failure) ? number : -1;
}

class LocalFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    Descriptor descriptor = open_descriptor(path, O_RDONLY);
    struct stat status {};
    if (!descriptor.is_open() || ::fstat(descriptor.number(), &status) != 0) {
      return status_of_errno(errno, "open", path);
    }
    if (S_ISDIR(status.st_mode)) {
      return status_of_errno(EISDIR, "open", path);
    }
    return std::unique_ptr<InputFile>(std::make_unique<LocalInputFile>(path, std::move(descriptor), status.st_size));
  }

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override { return open_output(path, O_CREAT | O_EXCL, "create"); }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override {
    // Opened by its name, an open file would have a second offset, and what else is written to it would go over these bytes; a
    // socket cannot be opened at all.
    if (const int number = own_descriptor(path); number >= 0) {
      if (const int flags = ::fcntl(number, F_GETFD); flags >= 0 && (flags & FD_CLOEXEC) != 0) {
        return status_of_errno(ENOENT, "open for appending", path);  // Opened by this program, not by whoever started it.
      }
      return output_of(Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 0)), path, "open for appending");
    }
    // What is there is opened as it is: the kernel may refuse O_CREAT for a pipe in a folder that all may write to.
    Result<std::unique_ptr<OutputFile>> opened = open_output(path, O_APPEND, "open for appending");
    const bool is_new = !opened.is_ok() && opened.status().code() == StatusCode::kNotFound;
    return is_new ? open_output(path, O_CREAT | O_APPEND, "open for appending") : std::move(opened);
  }

  Result<FileInfo> stat(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      return status_of_errno(errno, "open", path);
    }
    return info_of(path, status);
  }

  Result<WriteTarget> find_write_target(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& folder) override;
  Status create_folders(const std::string& folder) override;

  Status rename_no_replace(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return Status::ok();
    }
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
      return rename_by_link(from, to);
    }
    return status_of_errno(errno, "rename " + from + " to", to);
  }
  Status rename_replace(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status::ok() : status_of_errno(errno, "rename " + from + " to", to);
  }
  Status remove_file(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? Status::ok() : status_of_errno(errno, "remove", path);
  }
  Status remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? status_of_errno(error.value(), "remove", path) : Status::ok();
  }
  Status sync_file(const std::string& path) override { return sync_path(path, O_RDONLY, "sync to disk"); }
  Status sync_folder(const std::string& folder) override { return sync_path(folder, O_RDONLY | O_DIRECTORY, "sync to disk"); }
  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override;

 private:
  static Result<std::unique_ptr<OutputFile>> open_output(const std::string& path, int flags, std::string_view doing) {
    return output_of(open_descriptor(path, O_WRONLY | flags), path, doing);
  }
  static Result<std::unique_ptr<OutputFile>> output_of(Descriptor descriptor, const std::string& path, std::string_view doing) {
    if (!descriptor.is_open()) {
      return status_of_errno(errno, doing, path);
    }
    return std::unique_ptr<OutputFile>(std::make_unique<LocalOutputFile>(path, std::move(descriptor)));
  }
};

// A link in /proc stands for something open, whatever name its text holds.
bool is_in_proc(const std::string& path) {
  struct statfs status {};
  return ::statfs(parent_folder(path).c_str(), &status) == 0 && status.f_type == PROC_SUPER_MAGIC;
}

Result<std::string> read_link(const std::string& path) {
  std::error_code error;
  const std::filesystem::path text = std::filesystem::read_symlink(path, error);
  if (error) {
    return status_of_errno(error.value(), "read the link", path);
  }
  return text.is_absolute() ? text.string() : join_path(parent_folder(path), text.string());
}

Result<WriteTarget> LocalFileSystem::find_write_target(const std::string& path) {
  constexpr int kMaxLinks = 40;  // As many as the kernel follows.
  WriteTarget target{.path = path, .is_stream = false};
  for (int num_links = 0; num_links <= kMaxLinks; ++num_links) {
    struct stat status {};
    if (::lstat(target.path.c_str(), &status) != 0) {
      return errno == ENOENT ? Result<WriteTarget>(target) : status_of_errno(errno, "look at", target.path);
    }
    const bool is_link = S_ISLNK(status.st_mode);
    if (!is_link || is_in_proc(target.path)) {
      target.is_stream = is_link || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
      return target;
    }
    DARKROOM_ASSIGN_OR_RETURN(target.path, read_link(target.path));
  }
  return status_of_errno(ELOOP, "follow the links from", path);
}

Result<std::vector<FileInfo>> LocalFileSystem::list(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open_folder(::opendir(folder.c_str()), ::closedir);
  if (open_folder == nullptr) {
    return status_of_errno(errno, "list", folder);
  }
  std::vector<FileInfo> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(open_folder.get());
    if (entry == nullptr && errno != 0) {
      return status_of_errno(errno, "list", folder);
    }
    if (entry == nullptr) {
      break;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") {
      continue;
    }
    std::string path = join_path(folder, name);
    struct stat status {};
    // A link to nothing is listed as it is: opening it then says what is missing, where skipping it would hide a hole.
    if (::stat(path.c_str(), &status) == 0 || (errno == ENOENT && ::lstat(path.c_str(), &status) == 0)) {
      entries.push_back(info_of(std::move(path), status));
    } else if (errno != ENOENT) {  // Removed meanwhile: it is not there.
      return status_of_errno(errno, "open", path);
    }
  }
  std::sort(entries.begin(), entries.end(), [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  return entries;
}

Status LocalFileSystem::create_folders(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) {
    return sync_folder(parent_folder(folder));
  }
  if (errno == ENOENT && parent_folder(folder) != folder && !folder.empty()) {
    DARKROOM_RETURN_IF_ERROR(create_folders(parent_folder(folder)));
    // Once: a parent may be there and take nothing, as the working directory that somebody removed.
    if (::mkdir(folder.c_str(), 0777) == 0) {
      return sync_folder(parent_folder(folder));
    }
  }
  const int error = errno;
  struct stat status {};
  if (error == EEXIST && ::stat(folder.c_str(), &status) == 0) {
    return S_ISDIR(status.st_mode) ? Status::ok() : status_of_errno(ENOTDIR, "create the folder", folder);
  }
  return status_of_errno(error, "create the folder", folder);
}

// NFS locks for writing only what is open for writing; a folder, or a file that may only be read, cannot be. Nobody waits for who would
// write into a pipe of that name.
Descriptor open_to_lock(const std::string& path) {
  Descriptor writable = open_descriptor(path, O_RDWR);
  return writable.is_open() || errno == ENOENT ? std::move(writable) : open_descriptor(path, O_RDONLY | O_NONBLOCK);
}

Result<std::unique_ptr<FileLock>> LocalFileSystem::try_lock(const std::string& path) {
  Descriptor descriptor = open_to_lock(path);
  if (!descriptor.is_open()) {
    return status_of_errno(errno, "lock", path);
  }
  if (::flock(descriptor.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return std::unique_ptr<FileLock>();
    }
    return status_of_errno(errno == EBADF ? ENOLCK : errno, "lock", path);  // EBADF: the folder of an NFS.
  }
  // Between open and flock the name may have gone to another file: then this lock protects nothing.
  struct stat locked {};
  struct stat named {};
  if (::fstat(descriptor.number(), &locked) != 0 || ::stat(path.c_str(), &named) != 0) {
    return status_of_errno(errno, "lock", path);
  }
  if (locked.st_dev != named.st_dev || locked.st_ino != named.st_ino) {
    return status_of_errno(ENOENT, "lock", path);
  }
  return std::unique_ptr<FileLock>(std::make_unique<LocalLock>(std::move(descriptor)));
}

}  // namespace

FileSystem& local_files() {
  static LocalFileSystem files;
  return files;
}

}  // namespace darkroom
