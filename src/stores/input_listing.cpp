#include "darkroom/stores/input_listing.h"
#include "darkroom/files/local_path.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/picture_inputs.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {
namespace {

constexpr std::string_view kWildcards = "*?[";
constexpr size_t kMostFolders = 64;  // Between a folder that is listed and a file in it.
constexpr std::string_view kAnyDepth = "**";
constexpr std::string_view kTableEndings = ".parquet, .csv, .tsv, .jsonl, .ndjson or .json";
constexpr std::string_view kImageEndings = ".parquet, .tar, .mds, .jpg, .jpeg, .png, .webp or a table";

bool is_hidden_name(const std::string& name) { return name.starts_with('_') || name.starts_with('.'); }

bool name_fits(const std::string& pattern, const std::string& name) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; }

std::vector<std::string> names_of_path(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0) {
      names.emplace_back(path.substr(0, slash));
    }
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return names;
}

/// As add_tree, on a disk, folder by folder: what hidden folders hold (caches, loops of links) is not looked at.
template <typename Takes>
Status add_visible(const Location& folder, const std::stop_token& stop, std::vector<std::string>& names, const Takes& takes,
                   std::vector<InputObject>& found) {
  if (stop.stop_requested()) {
    return Status::cancelled("listing stopped on request (path):", folder.path);
  }
  if (names.size() > kMostFolders) {
    return Status::failed_precondition("listing stopped: folders are nested too deep, or links form a loop (path):", folder.path);
  }
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, folder.store->list(folder.path.empty() ? "." : folder.path));
  std::ranges::sort(entries, {}, [](const FileInfo& entry) { return entry.is_folder ? entry.path + "/" : entry.path; });
  for (const FileInfo& entry : entries) {
    names.push_back(file_name(entry.path));
    const Location place{.store = folder.store, .path = join_path(folder.path, names.back())};
    if (entry.is_folder && !is_hidden_name(names.back())) {
      DARKROOM_RETURN_IF_ERROR(add_visible(place, stop, names, takes, found));
    } else if (!entry.is_folder && !is_hidden_name(names.back()) && takes(names)) {
      found.push_back({.place = place, .size_bytes = entry.size_bytes});
    }
    names.pop_back();
  }
  return Status::ok();
}

/// Every visible file below `folder` for which `takes` (its names from there on) is true.
template <typename Takes>
Status add_tree(const Location& folder, std::stop_token stop, const Takes& takes, std::vector<InputObject>& found) {
  const std::string listed = folder.path.empty() ? "." : folder.path;
  if (folder.store->local_path(listed)) {
    std::vector<std::string> names;
    return add_visible(folder, stop, names, takes, found);
  }
  return folder.store->list_tree(listed, std::move(stop), [&](std::span<const FileInfo> page) {
    for (const FileInfo& entry : page) {
      const std::string_view within = std::string_view(entry.path).substr(std::min(listed.size(), entry.path.size()));
      const std::vector<std::string> names = names_of_path(within);
      if (std::ranges::none_of(names, is_hidden_name) && takes(names)) {
        std::string path = entry.path;  // As the store has it: a key may hold "//".
        if (folder.path.empty()) {
          path.clear();
          for (const std::string& name : names) {
            path = join_path(path, name);
          }
        }
        found.push_back({.place = {.store = folder.store, .path = std::move(path)}, .size_bytes = entry.size_bytes});
      }
    }
    return Status::ok();
  });
}

/// Looks into those folders alone that fit; from "**" on into all.
Status add_matches(const Location& folder, std::span<const std::string> pattern, const std::stop_token& stop,
                   std::vector<InputObject>& found) {
  if (pattern.front() == kAnyDepth) {
    return add_tree(
        folder, stop, [&](const std::vector<std::string>& names) { return path_fits(pattern, names); }, found);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, folder.store->list(folder.path.empty() ? "." : folder.path));
  for (const FileInfo& entry : entries) {
    const std::string name = file_name(entry.path);
    if (is_hidden_name(name) || !name_fits(pattern.front(), name)) {
      continue;
    }
    const Location place{.store = folder.store, .path = join_path(folder.path, name)};
    if (entry.is_folder && pattern.size() > 1) {
      DARKROOM_RETURN_IF_ERROR(add_matches(place, pattern.subspan(1), stop, found));
    } else if (!entry.is_folder && pattern.size() == 1) {
      found.push_back({.place = place, .size_bytes = entry.size_bytes});
    }
  }
  return Status::ok();
}

Status expand_place(const Location& place, const std::stop_token& stop, std::vector<InputObject>& found) {
  const std::vector<std::string> names = names_of_path(place.path);
  const auto first = std::ranges::find_if(names, has_wildcard);
  Location folder{.store = place.store, .path = place.path.starts_with('/') ? "/" : ""};
  for (auto name = names.begin(); name != first; ++name) {
    folder = folder / *name;
  }
  return add_matches(folder, std::span(first, names.end()), stop, found);
}

}  // namespace

namespace {

/// What a place names: a file, the visible files below a folder, or those that fit a pattern.
struct Named {
  std::vector<InputObject> objects = {};
  bool is_folder = false;
};

template <typename Takes>
Result<Named> list_named_once(const Location& place, const std::stop_token& stop, const Takes& takes) {
  const std::string context = "listing the input " + place.uri();
  const Result<FileInfo> info = place.store->stat(place.path);
  if (info.is_ok() && !info->is_folder) {
    return Named{.objects = {{.place = place, .size_bytes = info->size_bytes}}, .is_folder = false};
  }
  if (!info.is_ok() && (info.status().code() != StatusCode::kNotFound || !has_wildcard(place.path))) {
    return info.status().with_context(context);
  }
  Named named{.objects = {}, .is_folder = info.is_ok()};
  DARKROOM_RETURN_IF_ERROR(
      (named.is_folder ? add_tree(place, stop, takes, named.objects) : expand_place(place, stop, named.objects)).with_context(context));
  return named;
}

/// Whether an item went missing while what `place` names was listed: a part of it lies aside, and none is there.
Result<bool> misses_moved_part(const Location& place, const Named& named) {
  std::map<std::string, std::vector<FileInfo>> parts;  // By folder.
  for (const InputObject& object : named.objects) {
    if (PartName::parse(object.place.name())) {
      parts[parent_folder(object.place.path)].push_back({.path = object.place.path});
    }
  }
  for (const auto& [folder, listed] : parts) {
    DARKROOM_ASSIGN_OR_RETURN(const auto missed, moved_parts_without_next({.store = place.store, .path = folder}, listed));
    const std::string pattern = place.name();
    if (std::ranges::any_of(missed, [&](const PartName& part) { return named.is_folder || name_fits(pattern, part.text()); })) {
      return true;
    }
  }
  return false;
}

template <typename Takes>
Result<Named> list_named(const Location& place, const std::stop_token& stop, const Takes& takes) {
  DARKROOM_ASSIGN_OR_RETURN(Named named, list_named_once(place, stop, takes));
  if (!named.is_folder && !has_wildcard(place.path)) {
    return named;
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool misses_part, misses_moved_part(place, named));
  return misses_part ? list_named_once(place, stop, takes) : Result<Named>(std::move(named));
}

Result<std::vector<InputObject>> in_order(std::vector<InputObject> found, std::string_view endings, const Location& place) {
  if (found.empty()) {
    return Status::not_found(fmt::format("no input files ({}; names with a leading _ or . do not count):", endings), place.uri());
  }
  std::ranges::sort(found, {}, [](const InputObject& object) -> const std::string& { return object.place.path; });
  return found;
}

}  // namespace

bool has_wildcard(std::string_view path) { return path.find_first_of(kWildcards) != std::string_view::npos; }

std::string folder_above_wildcards(const std::string& path) {
  const size_t wildcard = path.find_first_of(kWildcards);
  return wildcard == std::string::npos ? path : parent_folder(path.substr(0, wildcard + 1));
}

bool path_fits(std::span<const std::string> pattern, std::span<const std::string> names) {
  // fits[j]: the pattern so far fits the first j names.
  std::vector<char> fits(names.size() + 1, 0);
  fits[0] = 1;
  for (const std::string& part : pattern) {
    std::vector<char> next(fits.size(), 0);
    for (size_t j = 0; j < fits.size(); ++j) {
      if (part == kAnyDepth) {
        next[j] = fits[j] != 0 || (j > 0 && next[j - 1] != 0);
      } else if (j > 0) {
        next[j] = fits[j - 1] != 0 && name_fits(part, names[j - 1]);
      }
    }
    fits = std::move(next);
  }
  return fits.back() != 0;
}

Result<std::vector<PartName>> moved_parts_without_next(const Location& folder, const std::vector<FileInfo>& parts) {
  std::vector<PartName> missed;
  if (parts.empty()) {
    return missed;  // A folder that was emptied for another job.
  }
  const Result<std::vector<FileInfo>> aside = folder.store->list((folder / kSupersededFolder).path);
  if (!aside.is_ok()) {
    return aside.status().code() == StatusCode::kNotFound ? Result<std::vector<PartName>>(std::move(missed)) : aside.status();
  }
  std::set<int64_t> items;
  for (const FileInfo& part : parts) {
    items.insert(PartName::parse(file_name(part.path))->item);
  }
  for (const FileInfo& moved : *aside) {
    const std::optional<PartName> part = moved.is_folder ? std::nullopt : PartName::parse(file_name(moved.path));
    if (part && !items.contains(part->item)) {
      missed.push_back(*part);
    }
  }
  return missed;
}

Result<std::vector<InputObject>> list_inputs_at(const Location& place, std::stop_token stop) {
  const auto is_table = [](const std::vector<std::string>& names) { return !names.empty() && is_table_path(names.back()); };
  DARKROOM_ASSIGN_OR_RETURN(Named named, list_named(place, stop, is_table));
  return in_order(std::move(named.objects), kTableEndings, place);
}

Result<std::vector<InputObject>> list_image_inputs_at(const Location& place, std::stop_token stop) {
  const auto is_any = [](const std::vector<std::string>& names) { return !names.empty(); };
  DARKROOM_ASSIGN_OR_RETURN(Named named, list_named(place, stop, is_any));
  std::vector<FileInfo> files;
  for (const InputObject& object : named.objects) {
    files.push_back({.path = object.place.path, .size_bytes = object.size_bytes});
  }
  const auto read_small = [&](const std::string& path) { return place.store->read_small(path); };
  const std::string folder(without_trailing_slashes(place.path));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> inputs,
                            named.is_folder ? find_picture_inputs(folder, files, read_small) : named_picture_inputs(files));
  std::vector<InputObject> found;
  for (const FileInfo& input : inputs) {
    found.push_back({.place = {.store = place.store, .path = input.path}, .size_bytes = input.size_bytes});
  }
  return in_order(std::move(found), kImageEndings, place);
}

namespace {

/// What `list_at` lists of a local address among the files of a file system; of several parts of an item the one that counts.
template <typename ListAt>
Result<std::vector<FileInfo>> list_local(FileSystem& files, const std::string& uri, std::stop_token stop, const ListAt& list_at) {
  DARKROOM_ASSIGN_OR_RETURN(std::string path, local_path(uri));
  const std::unique_ptr<Store> store = make_posix_store(files, "file");
  DARKROOM_ASSIGN_OR_RETURN(std::vector<InputObject> objects,
                            list_at(Location{.store = store.get(), .path = std::move(path)}, std::move(stop)));
  std::vector<FileInfo> found;
  for (InputObject& object : objects) {
    found.push_back({.path = std::move(object.place.path), .size_bytes = object.size_bytes, .is_folder = false});
  }
  if (found.size() > 1) {  // A part that was named alone is meant.
    (void)take_out_superseded_parts(found);
  }
  return found;
}

}  // namespace

Result<std::vector<FileInfo>> list_inputs(FileSystem& files, const std::string& uri, std::stop_token stop) {
  return list_local(files, uri, std::move(stop), list_inputs_at);
}

Result<std::vector<FileInfo>> list_image_inputs(FileSystem& files, const std::string& uri, std::stop_token stop) {
  return list_local(files, uri, std::move(stop), list_image_inputs_at);
}

}  // namespace darkroom
