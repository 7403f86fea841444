#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {

/// Whether a path is a pattern of names.
bool has_wildcard(std::string_view path);
/// Where the names that a pattern asks for begin: the folder above its first wildcard; of a path without one the path. Pure.
std::string folder_above_wildcards(const std::string& path);

/// Whether the names of a path fit a pattern, one a level; "**" stands for any number of levels. Takes time in proportion to the product of
/// both. Pure.
bool path_fits(std::span<const std::string> pattern, std::span<const std::string> names);

/// The parts that lie in `folder`/_superseded and of whose items `parts`, a listing of the folder, has none. A listing takes time: who
/// publishes the next generation behind its back and moves the older one aside before its turn takes the item out of it, so list again
/// when there are any. One that is missing then is missing. Errors: the store's.
Result<std::vector<PartName>> moved_parts_without_next(const Location& folder, const std::vector<FileInfo>& parts);

/// The files that a place, folder or pattern names, as StoreSet::resolve_inputs says.
Result<std::vector<InputObject>> list_inputs_at(const Location& place, std::stop_token stop);
/// The same as StoreSet::resolve_image_inputs says.
Result<std::vector<InputObject>> list_image_inputs_at(const Location& place, std::stop_token stop);

/// The same of a local address (local_path) among the files of a file system; of several parts of an item in one folder the one that counts
/// (part_name.h), unless one file is named.
Result<std::vector<FileInfo>> list_inputs(FileSystem& files, const std::string& uri, std::stop_token stop = {});

/// The inputs of an image dataset in the same way.
Result<std::vector<FileInfo>> list_image_inputs(FileSystem& files, const std::string& uri, std::stop_token stop = {});

}  // namespace darkroom
