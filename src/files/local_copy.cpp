#include "darkroom/files/local_copy.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr const char* kScratchName = "darkroom-scratch";
constexpr int64_t kRangeBytes = int64_t{8} << 20;    // Of one request.
constexpr int64_t kStepBytes = 8 * kRangeBytes;      // In memory at a time.
constexpr int64_t kUploadBytes = int64_t{16} << 20;  // Read of a local file at a time.

Status go_on_copying(const std::stop_token& stop, const std::string& what) {
  return stop.stop_requested() ? Status::cancelled("stopped while a file was copied:", what) : Status::ok();
}

/// Bytes [0, count) of a file of a store, appended to a local one.
Status append_bytes(const InputFile& from, int64_t count, OutputFile& to, const std::string& uri, const std::stop_token& stop) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(count, kStepBytes)));
  for (int64_t at = 0; at < count;) {
    DARKROOM_RETURN_IF_ERROR(go_on_copying(stop, uri));
    const int64_t step = std::min(kStepBytes, count - at);
    std::vector<ByteRange> ranges;
    std::vector<std::span<std::byte>> out;
    for (int64_t begin = 0; begin < step; begin += kRangeBytes) {
      const int64_t size = std::min(kRangeBytes, step - begin);
      ranges.push_back({.offset = at + begin, .num_bytes = size});
      out.push_back(std::span(buffer).subspan(static_cast<size_t>(begin), static_cast<size_t>(size)));
    }
    DARKROOM_RETURN_IF_ERROR(from.read_ranges(ranges, out));
    DARKROOM_RETURN_IF_ERROR(to.write(std::span(buffer).first(static_cast<size_t>(step))));
    at += step;
  }
  return Status::ok();
}

Status copy_object_here(const Location& from, std::optional<int64_t> known_size, const std::string& name, const std::string& path,
                        const CopyOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const auto input, from.store->open_input(from.path, known_size));
  int64_t wanted = input->size_bytes();
  if (options.wanted_bytes) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t asked, options.wanted_bytes(name, *input));
    wanted = std::clamp<int64_t>(asked, 0, wanted);
  }
  FileSystem& files = local_files();
  DARKROOM_RETURN_IF_ERROR(files.create_folders(parent_folder(path)));
  DARKROOM_RETURN_IF_ERROR(files.remove_tree(path));
  DARKROOM_ASSIGN_OR_RETURN(const auto output, files.create(path));
  DARKROOM_RETURN_IF_ERROR(append_bytes(*input, wanted, *output, from.uri(), options.stop));
  DARKROOM_RETURN_IF_ERROR(output->close());
  if (wanted < input->size_bytes()) {
    std::error_code error;
    std::filesystem::resize_file(path, static_cast<uintmax_t>(input->size_bytes()), error);
    if (error) {
      return Status::unavailable("a copy cannot be given its size (path, reason):", path, error.message());
    }
  }
  return Status::ok();
}

bool is_unpublished(const std::string& name) { return name.starts_with("_tmp") || name.find("/_tmp") != std::string::npos; }

}  // namespace

Result<ScratchFolder> ScratchFolder::make(const std::string& parent) {
  const char* given = std::getenv("TMPDIR");
  const std::string folder = !parent.empty() ? parent : given != nullptr && *given != '\0' ? given : "/tmp";
  DARKROOM_ASSIGN_OR_RETURN(auto made, FolderPublication::begin_beside(local_files(), folder, kScratchName));
  std::error_code error;
  std::filesystem::permissions(made->folder(), std::filesystem::perms::owner_all, error);
  if (error) {
    return Status::unavailable("a scratch folder cannot be kept from others (path, reason):", made->folder(), error.message());
  }
  return ScratchFolder(std::move(made));
}

Status copy_file_here(const Location& from, const std::string& path, const CopyOptions& options) {
  return copy_object_here(from, {}, from.name(), path, options);
}

bool is_name_within(const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(name).lexically_normal();
  return !name.empty() && name != "." && !plain.is_absolute() && plain.string() == name && !name.starts_with("..");
}

Status check_name_within(const std::string& name, const Location& object) {
  if (!is_name_within(name)) {
    return Status::failed_precondition("an object's name is no path within its folder, so it is not copied (object):", object.uri());
  }
  return {};
}

Status copy_tree_here(const Location& from, const std::string& folder, const CopyOptions& options) {
  std::vector<FileInfo> wanted;
  const std::string root(without_trailing_slashes(from.path));
  const auto choose = [&](std::span<const FileInfo> page) {
    for (const FileInfo& file : page) {
      const std::string name = file.path.substr(root.size() + 1);
      if (!is_unpublished(name) && (!options.takes || options.takes(name))) {
        wanted.push_back(file);
      }
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(from.store->list_tree(root, options.stop, choose));
  DARKROOM_RETURN_IF_ERROR(local_files().create_folders(folder));
  for (const FileInfo& file : wanted) {
    const std::string name = file.path.substr(root.size() + 1);
    DARKROOM_RETURN_IF_ERROR(check_name_within(name, {.store = from.store, .path = file.path}));
    DARKROOM_RETURN_IF_ERROR(
        copy_object_here({.store = from.store, .path = file.path}, file.size_bytes, name, join_path(folder, name), options));
  }
  return Status::ok();
}

Result<PublishOutcome> copy_file_there(const std::string& path, const Location& to, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto input, local_files().open_input(path));
  DARKROOM_ASSIGN_OR_RETURN(const auto object, to.store->begin_object(parent_folder(to.path), to.name()));
  std::vector<std::byte> buffer(static_cast<size_t>(std::clamp<int64_t>(input->size_bytes(), 1, kUploadBytes)));
  for (int64_t at = 0; at < input->size_bytes();) {
    DARKROOM_RETURN_IF_ERROR(go_on_copying(stop, to.uri()));
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, input->read_at(at, buffer));
    if (num_read == 0) {
      return Status::unavailable("a file became shorter while it was copied (path):", path);
    }
    DARKROOM_RETURN_IF_ERROR(object->write(std::span<const std::byte>(buffer).first(num_read)));
    at += static_cast<int64_t>(num_read);
  }
  return object->publish();
}

Status copy_tree_there(const std::string& folder, const Location& to, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, local_files().list_tree(folder));
  for (const FileInfo& entry : entries) {
    const std::string name = entry.path.substr(folder.size() + 1);
    DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, copy_file_there(entry.path, to / name, stop));
    if (outcome == PublishOutcome::kAlreadyThere) {
      return Status::already_exists("an object has the name of one that is written (object):", (to / name).uri());
    }
  }
  return Status::ok();
}

Result<PublishOutcome> publish_tree_there(const std::string& folder, const std::string& record_name, const Location& to,
                                          const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string record, read_file(local_files(), join_path(folder, record_name)));
  DARKROOM_ASSIGN_OR_RETURN(const auto pending, to.store->begin_folder(parent_folder(to.path), to.name()));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, local_files().list_tree(folder));
  for (const FileInfo& entry : entries) {
    const std::string name = entry.path.substr(folder.size() + 1);
    if (name != record_name) {
      DARKROOM_RETURN_IF_ERROR(copy_file_there(entry.path, pending->folder() / name, stop).status());
    }
  }
  return pending->publish(record_name, record);
}

Result<LocalCopy> LocalCopy::fetch(const Location& place, const CopyOptions& options) {
  if (auto local = place.store->local_path(place.path)) {
    return LocalCopy(*std::move(local));
  }
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, place.store->stat(place.path));
  DARKROOM_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::make());
  const std::string name = place.name();
  const bool is_inside = !name.empty() && name != "." && name != "..";
  LocalCopy copy(join_path(scratch.path(), is_inside ? name : "copy"));
  copy.scratch_.emplace(std::move(scratch));
  DARKROOM_RETURN_IF_ERROR(info.is_folder ? copy_tree_here(place, copy.path_, options) : copy_file_here(place, copy.path_, options));
  return copy;
}

}  // namespace darkroom
