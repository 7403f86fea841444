#include "darkroom/stores/uri.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "darkroom/core/shown_uri.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/web/http_client.h"

namespace darkroom {

namespace {

bool is_hidden(const std::string& name) { return name.starts_with('_') || name.starts_with('.'); }

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

Result<std::string> decode_percent(std::string_view text, const std::string& uri) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto is_hex = [&](size_t at) { return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0; };
    if (!is_hex(i + 1) || !is_hex(i + 2)) {
      return Status::invalid_argument("a % in a file:// address must be followed by two hexadecimal digits:", shown_uri(uri));
    }
    decoded += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return decoded;
}

/// Visible entries of a folder; none when it is gone or a file.
Result<std::vector<FileInfo>> visible_entries(FileSystem& files, const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, files.list(folder));
  std::erase_if(entries, [](const FileInfo& entry) { return is_hidden(file_name(entry.path)); });
  return entries;
}

Status collect_tables(FileSystem& files, const std::string& folder, int depth, std::vector<FileInfo>& found) {
  constexpr int kMaxFolderDepth = 64;
  if (depth > kMaxFolderDepth) {
    return Status::failed_precondition("listing stopped: folders are nested too deep, or links form a loop (path):", folder);
  }
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, visible_entries(files, folder));
  for (FileInfo& entry : entries) {
    if (entry.is_folder) {
      DARKROOM_RETURN_IF_ERROR(collect_tables(files, entry.path, depth + 1, found));
    } else if (is_table_path(entry.path)) {
      found.push_back(std::move(entry));
    }
  }
  return Status::ok();
}

std::vector<std::string> split_names(std::string_view path) {
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

/// Adds every file below `folder` whose names fit `names`, one a level; "**" stands for any number of levels.
Status collect_matches(FileSystem& files, const std::string& folder, std::span<const std::string> names, std::vector<FileInfo>& found) {
  const bool any_depth = names.front() == "**";
  if (any_depth && names.size() > 1) {
    DARKROOM_RETURN_IF_ERROR(collect_matches(files, folder, names.subspan(1), found));
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, visible_entries(files, folder.empty() ? "." : folder));
  for (const FileInfo& entry : entries) {
    const std::string name = file_name(entry.path);
    const std::string path = join_path(folder, name);
    if (!any_depth && ::fnmatch(names.front().c_str(), name.c_str(), 0) != 0) {
      continue;
    }
    if (entry.is_folder && (any_depth || names.size() > 1)) {
      DARKROOM_RETURN_IF_ERROR(collect_matches(files, path, any_depth ? names : names.subspan(1), found));
    } else if (!entry.is_folder && names.size() == 1) {
      found.push_back({.path = path, .size_bytes = entry.size_bytes, .is_folder = false});
    }
  }
  return Status::ok();
}

Result<std::vector<FileInfo>> expand_pattern(FileSystem& files, const std::string& path) {
  const std::vector<std::string> names = split_names(path);
  const auto first = std::find_if(names.begin(), names.end(), is_pattern);
  std::string folder = path.starts_with('/') ? "/" : "";
  for (auto name = names.begin(); name != first; ++name) {
    folder = join_path(folder, *name);
  }
  std::vector<FileInfo> found;
  DARKROOM_RETURN_IF_ERROR(collect_matches(files, folder, std::span(first, names.end()), found));
  return found;
}

void sort_by_path(std::vector<FileInfo>& infos) {
  std::sort(infos.begin(), infos.end(), [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  infos.erase(std::unique(infos.begin(), infos.end()), infos.end());  // "**" may reach a file twice.
}

}  // namespace

Result<std::string> local_path(const std::string& uri) {
  const size_t colon = uri.find("://");
  if (colon == std::string::npos) {
    return uri.empty() ? Result<std::string>(Status::invalid_argument("an empty path was given")) : uri;
  }
  std::string scheme = uri.substr(0, colon);
  std::ranges::transform(scheme, scheme.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (scheme == "s3" || scheme == "hf" || scheme == "https" || scheme == "http") {
    return Status::invalid_argument("this kind of address is not built yet; copy the files to a local folder and name that:",
                                    shown_url(uri));
  }
  if (scheme != "file") {
    return Status::invalid_argument("unknown kind of address; give a path or a file:// address:", shown_url(uri));
  }
  const std::string_view rest = std::string_view(uri).substr(colon + 3);
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || (slash > 0 && rest.substr(0, slash) != "localhost")) {
    return Status::invalid_argument("a file:// address needs an absolute path and no host (file:///folder/name):", shown_uri(uri));
  }
  return decode_percent(rest.substr(slash), uri);
}

Result<std::vector<FileInfo>> list_inputs(FileSystem& files, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string path, local_path(uri));
  Result<FileInfo> info = files.stat(path);
  if (info.is_ok() && !info->is_folder) {
    return std::vector<FileInfo>{*info};
  }
  if (!info.is_ok() && (info.status().code() != StatusCode::kNotFound || !is_pattern(path))) {
    return info.status().with_context("listing the input " + uri);
  }
  std::vector<FileInfo> found;
  if (info.is_ok()) {
    DARKROOM_RETURN_IF_ERROR(collect_tables(files, path, 0, found));
  } else {
    Result<std::vector<FileInfo>> matches = expand_pattern(files, path);
    if (!matches.is_ok()) {
      return matches.status().with_context("listing the input " + uri);
    }
    found = *std::move(matches);
  }
  if (found.empty()) {
    return Status::not_found(
        "no input files (.parquet, .csv, .tsv, .jsonl, .ndjson, .json or .mds; names with a leading _ or . do not count):", uri);
  }
  sort_by_path(found);
  (void)take_out_superseded_parts(found);
  std::vector<std::string> paths;
  for (const FileInfo& file : found) {
    paths.push_back(file.path);
  }
  const std::vector<bool> are_indexes = find_mds_indexes(paths);
  size_t next = 0;
  std::erase_if(found, [&](const FileInfo&) { return bool{are_indexes[next++]}; });
  return found;
}

}  // namespace darkroom
