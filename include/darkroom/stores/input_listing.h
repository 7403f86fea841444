#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// Whether the names of a path fit a pattern, one a level; "**" stands for any number of levels. Takes time in proportion to the product of
/// both. Pure.
bool path_fits(std::span<const std::string> pattern, std::span<const std::string> names);

/// The files that a place, folder or pattern names, as StoreSet::resolve_inputs says.
Result<std::vector<InputObject>> list_inputs_at(const Location& place, std::stop_token stop);

/// The same of a local address (local_path) among the files of a file system; of several parts of an item in one folder the one that counts
/// (part_name.h), unless one file is named.
Result<std::vector<FileInfo>> list_inputs(FileSystem& files, const std::string& uri, std::stop_token stop = {});

}  // namespace darkroom
