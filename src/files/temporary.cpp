#include "temporary.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "darkroom/core/machine.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"

namespace darkroom {

namespace {

constexpr size_t kMaxNameBytes = 80;  // Of a target in its temporary's name: with UNIQUE within 143 bytes, what eCryptfs leaves of 255.
constexpr int kMaxAttempts = 16;      // A sweep may take a fresh temporary before it is locked.
constexpr size_t kNumOwnerFields = 5;

/// A namespace of process ids on a machine since it was started, as 8 hex digits.
std::string machine_mark() {
  std::ifstream boot_file("/proc/sys/kernel/random/boot_id");
  const std::string boot((std::istreambuf_iterator<char>(boot_file)), std::istreambuf_iterator<char>());
  std::error_code none;
  const std::string process_ids = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
  // Without a name the other two still tell machines apart.
  return sha256_hex(fmt::format("{}\n{}\n{}", host_name(), boot, process_ids)).substr(0, 8);
}

const std::string& this_machine() {
  static const std::string mark = machine_mark();
  return mark;
}

std::vector<std::string_view> split_fields(std::string_view text) {
  std::vector<std::string_view> fields;
  for (size_t dash = 0; (dash = text.find('-')) != std::string_view::npos; text.remove_prefix(dash + 1)) {
    fields.push_back(text.substr(0, dash));
  }
  fields.push_back(text);
  return fields;
}

std::optional<int64_t> parse_hex(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

bool is_unknown_writer(StatusCode code) { return code == StatusCode::kNotFound || code == StatusCode::kFailedPrecondition; }

bool is_abandoned(const std::string& path, std::chrono::sys_seconds oldest) {
  const std::optional<TemporaryOwner> owner = owner_of_temporary(file_name(path));
  if (!owner) {
    return false;
  }
  return owner->machine == this_machine() ? is_dead_here(*owner) : owner->made < oldest;
}

}  // namespace

std::string unique_name(const std::string& name) {
  static const uint64_t process_mark = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  static std::atomic<uint64_t> counter{0};
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now()).time_since_epoch().count();
  return fmt::format("{}.{}-{:x}-{:x}-{:016x}-{:x}", name.substr(0, kMaxNameBytes), this_machine(), getpid(), now, process_mark, counter++);
}

std::optional<TemporaryOwner> owner_of_temporary(std::string_view name) {
  const std::vector<std::string_view> fields = split_fields(name.substr(name.rfind('.') + 1));
  if (name.find('.') == std::string_view::npos || fields.size() != kNumOwnerFields || fields[0].size() != 8 || fields[3].size() != 16) {
    return std::nullopt;
  }
  const std::optional<int64_t> pid = parse_hex(fields[1]);
  const std::optional<int64_t> seconds = parse_hex(fields[2]);
  const bool is_ours = pid && *pid > 0 && *pid <= INT32_MAX && seconds && *seconds <= UINT32_MAX && parse_hex(fields[4]);
  if (!is_ours) {
    return std::nullopt;
  }
  return TemporaryOwner{
      .machine = std::string(fields[0]), .pid = static_cast<pid_t>(*pid), .made = std::chrono::sys_seconds(std::chrono::seconds(*seconds))};
}

bool is_dead_here(const TemporaryOwner& owner) { return owner.machine == this_machine() && ::kill(owner.pid, 0) != 0 && errno == ESRCH; }

bool is_temporary_beside(std::string_view entry, const std::string& name) {
  const std::string head = fmt::format("{}{}.", kTemporaryPrefix, name.substr(0, kMaxNameBytes));
  if (!entry.starts_with(head)) {
    return false;
  }
  const std::string_view unique = entry.substr(head.size());
  const auto num_dashes = std::count(unique.begin(), unique.end(), '-');  // Version 0.1 wrote MARK-PID-COUNT.
  return unique.find_first_not_of("-0123456789abcdef") == std::string_view::npos &&
         (num_dashes == 2 || num_dashes == static_cast<std::ptrdiff_t>(kNumOwnerFields) - 1);
}

Result<bool> lock_where_possible(FileSystem& files, const std::string& path, std::unique_ptr<FileLock>& lock) {
  Result<std::unique_ptr<FileLock>> locked = files.try_lock(path);
  if (locked.is_ok()) {
    lock = *std::move(locked);
    return lock != nullptr;
  }
  if (locked.status().code() == StatusCode::kNotFound) {
    return false;
  }
  return locked.status().code() == StatusCode::kFailedPrecondition ? Result<bool>(true) : locked.status();
}

Result<Temporary> make_temporary(FileSystem& files, const std::string& folder, const std::string& name) {
  DARKROOM_RETURN_IF_ERROR(files.create_folders(folder));
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    Temporary made{.path = join_path(folder, unique_name(name)), .file = nullptr, .lock = nullptr};
    DARKROOM_ASSIGN_OR_RETURN(made.file, files.create(made.path));
    Result<bool> locked = lock_where_possible(files, made.path, made.lock);  // False: a sweep was faster, take another name.
    if (locked.is_ok() && *locked) {
      return made;
    }
    (void)files.remove_file(made.path);  // Best effort: what stays is unlocked, so a sweep takes it.
    if (!locked.is_ok()) {
      return locked.status();
    }
  }
  return Status::unavailable("a temporary file was removed each time before it was locked (folder):", folder);
}

Result<TemporaryTree> make_temporary_tree(FileSystem& files, const std::string& prefix, const std::string& name) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    TemporaryTree made{.path = prefix + unique_name(name), .lock = nullptr};
    Status created = files.create_folders(made.path);
    Result<bool> locked = created.is_ok() ? lock_where_possible(files, made.path, made.lock) : Result<bool>(created);
    if (locked.is_ok() && *locked) {
      return made;
    }
    (void)files.remove_tree(made.path);  // Best effort: what stays is invisible and swept by the next run.
    if (!locked.is_ok()) {
      return locked.status();
    }
  }
  return Status::unavailable("a temporary folder was removed each time before it was locked (folder):", parent_folder(prefix + name));
}

Result<std::optional<HeldLeftover>> hold_if_dead(FileSystem& files, const std::string& path, std::chrono::sys_seconds oldest) {
  using Held = std::optional<HeldLeftover>;
  Result<std::unique_ptr<FileLock>> lock = files.try_lock(path);
  if (lock.is_ok()) {
    return *lock == nullptr ? Held() : Held(HeldLeftover{.path = path, .lock = *std::move(lock)});
  }
  if (!is_unknown_writer(lock.status().code())) {
    return lock.status();
  }
  const bool has_no_locks = lock.status().code() == StatusCode::kFailedPrecondition;
  return has_no_locks && is_abandoned(path, oldest) ? Held(HeldLeftover{.path = path, .lock = nullptr}) : Held();
}

Result<std::vector<FileInfo>> list_leftovers(FileSystem& files, const std::string& output_folder) {
  std::vector<FileInfo> leftovers;
  for (const std::string& folder : {output_folder, join_path(output_folder, kTemporaryFolder)}) {
    Result<std::vector<FileInfo>> entries = files.list(folder);
    if (!entries.is_ok() && entries.status().code() != StatusCode::kNotFound) {
      return entries.status();
    }
    if (!entries.is_ok()) {
      continue;
    }
    std::copy_if(entries->begin(), entries->end(), std::back_inserter(leftovers),
                 [&](const FileInfo& entry) { return folder != output_folder || file_name(entry.path).starts_with(kTemporaryPrefix); });
  }
  return leftovers;
}

Result<PublishOutcome> finish_rename(FileSystem& files, const Status& renamed, const std::string& output_folder) {
  const bool lost = renamed.code() == StatusCode::kAlreadyExists;
  if (!renamed.is_ok() && !lost) {
    return renamed;
  }
  DARKROOM_RETURN_IF_ERROR(files.sync_folder(output_folder));
  return lost ? PublishOutcome::kAlreadyThere : PublishOutcome::kPublished;
}

void check_plain_name(const std::string& name) {
  DARKROOM_CHECK(!name.empty() && name.find('/') == std::string::npos, "not a plain name:", name);
}

Status sync_tree(FileSystem& files, const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(folder));
  for (const FileInfo& entry : entries) {
    DARKROOM_RETURN_IF_ERROR(entry.is_folder ? sync_tree(files, entry.path) : files.sync_file(entry.path));
  }
  return files.sync_folder(folder);
}

}  // namespace darkroom
