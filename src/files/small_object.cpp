#include "small_object.h"

#include <algorithm>
#include <functional>

#include "darkroom/files/paths.h"
#include "temporary.h"

namespace darkroom {

namespace {

constexpr const char* kContentName = "_content";  // Of the file in a small object that is a folder.
constexpr int kMaxLooks = 8;                      // One that is removed and made again between two steps is looked at again.

Status fill_and_close(OutputFile& file, std::string_view bytes) {
  DARKROOM_RETURN_IF_ERROR(file.write_text(bytes));
  DARKROOM_RETURN_IF_ERROR(file.sync());
  return file.close();
}

/// The name is taken, or ours: whose reply was lost on its way finds its temporary gone.
Result<bool> is_created(FileSystem& files, const Status& renamed, const std::string& path) {
  if (renamed.is_ok()) {
    DARKROOM_RETURN_IF_ERROR(files.sync_folder(parent_folder(path)));
    return true;
  }
  if (renamed.code() == StatusCode::kAlreadyExists) {
    return false;
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, renamed.code() == StatusCode::kNotFound ? files.exists(path) : Result<bool>(false));
  return is_there ? Result<bool>(false) : renamed;
}

Result<bool> create_as_file(FileSystem& files, const std::string& path, std::string_view bytes) {
  DARKROOM_ASSIGN_OR_RETURN(Temporary made, make_temporary(files, parent_folder(path), std::string(kTemporaryPrefix) + file_name(path)));
  RemoveAtReturn removal{.files = files, .temporary = made};
  DARKROOM_RETURN_IF_ERROR(fill_and_close(*made.file, bytes));
  const Status renamed = files.rename_no_replace(made.path, path);
  removal.is_renamed = renamed.is_ok();
  return is_created(files, renamed, path);
}

Status fill_folder(FileSystem& files, const std::string& folder, std::string_view bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, files.create(join_path(folder, kContentName)));
  DARKROOM_RETURN_IF_ERROR(fill_and_close(*file, bytes));
  return files.sync_folder(folder);
}

Result<bool> create_as_folder(FileSystem& files, const std::string& path, std::string_view bytes) {
  const std::string prefix = join_path(parent_folder(path), kTemporaryPrefix);
  DARKROOM_ASSIGN_OR_RETURN(const TemporaryTree made, make_temporary_tree(files, prefix, file_name(path)));
  Status renamed = fill_folder(files, made.path, bytes);
  if (renamed.is_ok()) {
    renamed = files.rename_no_replace(made.path, path);
  }
  if (!renamed.is_ok()) {
    (void)files.remove_tree(made.path);  // Best effort: what stays is invisible and swept by the next run.
  }
  return is_created(files, renamed, path);
}

/// One look. kFailedPrecondition: a folder of objects, or what was there went between the two steps.
Result<std::unique_ptr<InputFile>> look_at_small_object(FileSystem& files, const std::string& path) {
  Result<std::unique_ptr<InputFile>> file = files.open_input(path);
  if (file.is_ok() || file.status().code() != StatusCode::kFailedPrecondition) {
    return file;
  }
  Result<std::unique_ptr<InputFile>> content = files.open_input(join_path(path, kContentName));
  const bool is_folder_without = !content.is_ok() && content.status().code() == StatusCode::kNotFound;
  return is_folder_without ? std::move(file) : std::move(content);
}

Result<std::unique_ptr<InputFile>> open_small_object(FileSystem& files, const std::string& path) {
  Result<std::unique_ptr<InputFile>> file = look_at_small_object(files, path);
  for (int look = 1; look < kMaxLooks && file.status().code() == StatusCode::kFailedPrecondition; ++look) {
    file = look_at_small_object(files, path);
  }
  return file;
}

Result<bool> is_small_folder(FileSystem& files, const std::string& path) {
  const Result<FileInfo> info = files.stat(path);
  return info.is_ok() && info->is_folder ? files.exists(join_path(path, kContentName)) : Result<bool>(false);
}

/// What `act` does with what stands at `path`, again when that was another thing by then: kFailedPrecondition, a folder.
Status act_on_small_object(FileSystem& files, const std::string& path, const std::function<Status(bool is_folder)>& act) {
  Status done;
  for (int look = 0; look < kMaxLooks; ++look) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_folder, is_small_folder(files, path));
    done = act(is_folder);
    if (done.code() != StatusCode::kFailedPrecondition) {
      break;
    }
  }
  return done;
}

/// Out of the way in one step, so that nobody's next one is met half-way.
Status remove_small_folder(FileSystem& files, const std::string& path) {
  const std::string aside = join_path(parent_folder(path), unique_name(std::string(kTemporaryPrefix) + file_name(path)));
  DARKROOM_RETURN_IF_ERROR(files.rename_no_replace(path, aside));
  return files.remove_tree(aside);
}

}  // namespace

Result<bool> create_small_object(FileSystem& files, const std::string& path, std::string_view bytes, SmallForm form) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  if (is_there) {
    return false;
  }
  return form == SmallForm::kFile ? create_as_file(files, path, bytes) : create_as_folder(files, path, bytes);
}

Result<std::string> read_small_object(FileSystem& files, const std::string& path, int64_t max_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, open_small_object(files, path));
  std::string text;
  constexpr int64_t kStepBytes = 4 << 10;  // A file of /proc states no size.
  for (int64_t have = 0; have <= max_bytes; have = static_cast<int64_t>(text.size())) {
    const int64_t step = std::min(std::max(file->size_bytes() + 1 - have, kStepBytes), max_bytes + 1 - have);
    text.resize(static_cast<size_t>(have + step));
    const auto rest = std::as_writable_bytes(std::span(text)).subspan(static_cast<size_t>(have));
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(have, rest));
    text.resize(static_cast<size_t>(have) + num_read);
    if (num_read < rest.size()) {
      break;
    }
  }
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return Status::corrupt_data("a file is larger than anything that belongs there (path, most bytes):", path, max_bytes);
  }
  return text;
}

Status replace_small_object(FileSystem& files, const std::string& path, std::string_view bytes) {
  return act_on_small_object(
      files, path, [&](bool is_folder) { return write_file_atomic(files, is_folder ? join_path(path, kContentName) : path, bytes); });
}

Status remove_small_object(FileSystem& files, const std::string& path) {
  const Status removed = act_on_small_object(
      files, path, [&](bool is_folder) { return is_folder ? remove_small_folder(files, path) : files.remove_file(path); });
  return removed.code() == StatusCode::kNotFound ? Status::ok() : removed;
}

}  // namespace darkroom
