#include "darkroom/stores/input_listing.h"

#include <fnmatch.h>

#include <algorithm>

#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {
namespace {

constexpr std::string_view kAnyDepth = "**";

bool is_hidden_name(const std::string& name) { return name.starts_with('_') || name.starts_with('.'); }

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

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

/// Every visible file below `folder` for which `takes` (its names from there on) is true.
template <typename Takes>
Status add_tree(const Location& folder, std::stop_token stop, const Takes& takes, std::vector<InputObject>& found) {
  const std::string listed = folder.path.empty() ? "." : folder.path;
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

Result<std::vector<InputObject>> list_inputs_at(const Location& place, std::stop_token stop) {
  const std::string context = "listing the input " + place.uri();
  const Result<FileInfo> info = place.store->stat(place.path);
  if (info.is_ok() && !info->is_folder) {
    return std::vector<InputObject>{{.place = place, .size_bytes = info->size_bytes}};
  }
  if (!info.is_ok() && (info.status().code() != StatusCode::kNotFound || !has_wildcard(place.path))) {
    return info.status().with_context(context);
  }
  std::vector<InputObject> found;
  const auto is_table = [](const std::vector<std::string>& names) { return !names.empty() && is_table_path(names.back()); };
  DARKROOM_RETURN_IF_ERROR(
      (info.is_ok() ? add_tree(place, stop, is_table, found) : expand_place(place, stop, found)).with_context(context));
  if (found.empty()) {
    return Status::not_found("no input files (.parquet, .csv, .tsv, .jsonl, .ndjson or .json; names with a leading _ or . do not count):",
                             place.uri());
  }
  std::ranges::sort(found, {}, [](const InputObject& object) -> const std::string& { return object.place.path; });
  return found;
}

Result<std::vector<FileInfo>> list_inputs(FileSystem& files, const std::string& uri, std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(std::string path, local_path(uri));
  const std::unique_ptr<Store> store = make_posix_store(files, "file");
  DARKROOM_ASSIGN_OR_RETURN(std::vector<InputObject> objects, list_inputs_at({.store = store.get(), .path = std::move(path)}, stop));
  std::vector<FileInfo> found;
  for (InputObject& object : objects) {
    found.push_back({.path = std::move(object.place.path), .size_bytes = object.size_bytes, .is_folder = false});
  }
  if (found.size() > 1) {  // A part that was named alone is meant.
    (void)take_out_superseded_parts(found);
  }
  return found;
}

}  // namespace darkroom
