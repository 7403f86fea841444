#include "darkroom/files/posix_store.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "darkroom/files/paths.h"
#include "posix_pending.h"
#include "posix_sweep.h"
#include "small_object.h"
#include "temporary.h"

namespace darkroom {

namespace {

constexpr size_t kPageEntries = 1000;
constexpr int kMaxTreeDepth = 64;

/// Hands the files of a tree over in byte order of their paths: a folder counts as its name with a slash.
class TreeWalk {
 public:
  TreeWalk(FileSystem& files, std::stop_token stop, const std::function<Status(std::span<const FileInfo>)>& page)
      : files_(files), stop_(std::move(stop)), page_(page) {}

  Status walk(const std::string& folder, int depth) {
    if (depth > kMaxTreeDepth) {
      return Status::failed_precondition("listing stopped: folders are nested too deep, or links form a loop (path):", folder);
    }
    DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, files_.list(folder));
    const auto key = [](const FileInfo& entry) { return entry.is_folder ? entry.path + "/" : entry.path; };
    std::ranges::sort(entries, {}, key);
    for (FileInfo& entry : entries) {
      DARKROOM_RETURN_IF_ERROR(entry.is_folder ? walk(entry.path, depth + 1) : add(std::move(entry)));
    }
    return Status::ok();
  }

  Status finish() { return pending_.empty() ? Status::ok() : hand_over(); }

 private:
  Status add(FileInfo entry) {
    pending_.push_back(std::move(entry));
    return pending_.size() < kPageEntries ? Status::ok() : hand_over();
  }
  Status hand_over() {
    if (stop_.stop_requested()) {
      return Status::cancelled("listing stopped on request (path):", pending_.front().path);
    }
    const Status taken = page_(pending_);
    pending_.clear();
    return taken;
  }

  FileSystem& files_;
  std::stop_token stop_;
  const std::function<Status(std::span<const FileInfo>)>& page_;
  std::vector<FileInfo> pending_;
};

/// Finds out by renaming an empty file of ours.
Result<FirstWins> probe_first_wins(FileSystem& files, const std::string& folder) {
  const std::string name = std::string(kTemporaryPrefix) + "first-wins";
  DARKROOM_ASSIGN_OR_RETURN(const Temporary made, make_temporary(files, folder, name));
  DARKROOM_RETURN_IF_ERROR(made.file->close());
  const std::string other = join_path(folder, unique_name(name));
  const Status renamed = files.rename_no_replace(made.path, other);
  DARKROOM_RETURN_IF_ERROR(files.remove_file(renamed.is_ok() ? other : made.path));
  if (renamed.code() == StatusCode::kFailedPrecondition) {
    return FirstWins::kCommitRecord;
  }
  return renamed.is_ok() ? Result<FirstWins>(FirstWins::kAtomic) : renamed;
}

Result<bool> hold_same_bytes(FileSystem& files, const std::string& one_path, const std::string& other_path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> one, files.open_input(one_path));
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> other, files.open_input(other_path));
  if (one->size_bytes() != other->size_bytes()) {
    return false;
  }
  constexpr int64_t kStepBytes = 1 << 20;
  std::vector<std::byte> ours(kStepBytes);
  std::vector<std::byte> theirs(kStepBytes);
  for (int64_t offset = 0; offset < one->size_bytes(); offset += kStepBytes) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_ours, one->read_at(offset, ours));
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_theirs, other->read_at(offset, theirs));
    if (num_ours != num_theirs || !std::equal(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(num_ours), theirs.begin())) {
      return false;
    }
  }
  return true;
}

class PosixStore final : public Store {
 public:
  PosixStore(FileSystem& files, std::string scheme) : files_(files), scheme_(std::move(scheme)) {}

  std::string_view scheme() const override { return scheme_; }
  std::string uri_of(const std::string& path) const override { return is_local() ? path : fmt::format("{}://{}", scheme_, path); }
  bool is_writable() const override { return true; }
  std::optional<std::string> local_path(const std::string& path) const override { return is_local() ? std::optional(path) : std::nullopt; }

  Result<FileInfo> stat(const std::string& path) override { return files_.stat(path); }
  Result<std::vector<FileInfo>> list(const std::string& folder) override { return files_.list(folder); }
  Status list_tree(const std::string& folder, std::stop_token stop, const std::function<Status(std::span<const FileInfo>)>& page) override {
    TreeWalk tree(files_, std::move(stop), page);
    DARKROOM_RETURN_IF_ERROR(tree.walk(folder, 0));
    return tree.finish();
  }
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path, std::optional<int64_t> /*known_size*/) override {
    return files_.open_input(path);
  }
  Result<ObjectTail> read_tail(const std::string& path, int64_t num_bytes) override;
  Result<std::string> read_small(const std::string& path, int64_t max_bytes) override { return read_small_object(files_, path, max_bytes); }

  Result<std::unique_ptr<PendingObject>> begin_object(const std::string& folder, const std::string& name) override {
    return begin_posix_object(*this, files_, folder, name);
  }
  Result<std::unique_ptr<PendingFolder>> begin_folder(const std::string& folder, const std::string& name) override {
    return begin_posix_folder(*this, files_, folder, name);
  }

  Status replace_small(const std::string& path, std::string_view bytes) override { return replace_small_object(files_, path, bytes); }
  Result<bool> create_small(const std::string& path, std::string_view bytes) override {
    DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, first_wins(parent_folder(path)));
    return create_small_object(files_, path, bytes, how == FirstWins::kAtomic ? SmallForm::kFile : SmallForm::kFolder);
  }
  Status remove(const std::string& path) override { return remove_small_object(files_, path); }
  Status remove_tree(const std::string& folder) override { return files_.remove_tree(folder); }
  Status move_object(const std::string& from, const std::string& to) override;
  Status move_over(const std::string& from, const std::string& to) override;

  Result<SweepReport> sweep(const std::string& folder, std::chrono::seconds age, std::chrono::system_clock::time_point now) override {
    return sweep_posix_folder({.store = this, .path = folder}, files_, std::chrono::floor<std::chrono::seconds>(now) - age);
  }
  Result<FirstWins> first_wins(const std::string& folder) override;

 private:
  bool is_local() const { return scheme_ == "file"; }
  Status rename_or_say_taken(const std::string& from, const std::string& to);
  Status settle_move(const std::string& from, const std::string& to, const Status& renamed);

  FileSystem& files_;
  const std::string scheme_;
  std::mutex mutex_;  // Guards first_wins_.
  std::map<std::string, FirstWins> first_wins_;
};

Result<ObjectTail> PosixStore::read_tail(const std::string& path, int64_t num_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files_.open_input(path));
  ObjectTail tail{.size_bytes = file->size_bytes()};
  tail.bytes.resize(static_cast<size_t>(std::clamp<int64_t>(num_bytes, 0, tail.size_bytes)));
  const ByteRange range{.offset = tail.size_bytes - static_cast<int64_t>(tail.bytes.size()),
                        .num_bytes = static_cast<int64_t>(tail.bytes.size())};
  const std::span<std::byte> out = std::as_writable_bytes(std::span(tail.bytes));
  DARKROOM_RETURN_IF_ERROR(file->read_ranges(std::span(&range, 1), std::span(&out, 1)));
  return tail;
}

Result<FirstWins> PosixStore::first_wins(const std::string& folder) {
  {
    const std::lock_guard hold(mutex_);
    if (const auto known = first_wins_.find(folder); known != first_wins_.end()) {
      return known->second;
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const FirstWins found, probe_first_wins(files_, folder));
  const std::lock_guard hold(mutex_);
  return first_wins_[folder] = found;
}

/// kAlreadyExists when something stands at `to`.
Status PosixStore::rename_or_say_taken(const std::string& from, const std::string& to) {
  const Status renamed = files_.rename_no_replace(from, to);
  if (renamed.code() != StatusCode::kFailedPrecondition) {
    return renamed;
  }
  DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, first_wins(parent_folder(to)));
  if (how == FirstWins::kAtomic) {
    return renamed;
  }
  // Only movers of one and the same object race for its new name.
  DARKROOM_ASSIGN_OR_RETURN(const bool is_taken, files_.exists(to));
  return is_taken ? Status::already_exists("an object has the name (path):", to) : files_.rename_replace(from, to);
}

Status PosixStore::move_object(const std::string& from, const std::string& to) {
  DARKROOM_CHECK(std::filesystem::path(from).lexically_normal() != std::filesystem::path(to).lexically_normal(),
                 "an object moves to where it is (path):", from);
  DARKROOM_RETURN_IF_ERROR(files_.create_folders(parent_folder(to)));
  const Status renamed = rename_or_say_taken(from, to);
  if (renamed.code() == StatusCode::kAlreadyExists) {
    const Result<bool> is_same = hold_same_bytes(files_, from, to);
    DARKROOM_RETURN_IF_ERROR(is_same.is_ok() && !*is_same ? renamed : is_same.status());
    DARKROOM_RETURN_IF_ERROR(files_.sync_folder(parent_folder(to)));
    return settle_move(from, to, remove(from));
  }
  return settle_move(from, to, renamed);
}

Status PosixStore::move_over(const std::string& from, const std::string& to) {
  DARKROOM_CHECK(std::filesystem::path(from).lexically_normal() != std::filesystem::path(to).lexically_normal(),
                 "an object moves to where it is (path):", from);
  DARKROOM_RETURN_IF_ERROR(files_.create_folders(parent_folder(to)));
  return settle_move(from, to, files_.rename_replace(from, to));
}

/// What another has moved before is moved.
Status PosixStore::settle_move(const std::string& from, const std::string& to, const Status& renamed) {
  if (renamed.code() == StatusCode::kNotFound) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_moved, files_.exists(to));
    DARKROOM_RETURN_IF_ERROR(is_moved ? Status::ok() : renamed);
  } else {
    DARKROOM_RETURN_IF_ERROR(renamed);
  }
  DARKROOM_RETURN_IF_ERROR(files_.sync_folder(parent_folder(to)));
  return files_.sync_folder(parent_folder(from));
}

}  // namespace

std::unique_ptr<Store> make_posix_store(FileSystem& files, std::string scheme) {
  return std::make_unique<PosixStore>(files, std::move(scheme));
}

Store& local_store() {
  static PosixStore store(local_files(), "file");
  return store;
}

}  // namespace darkroom
