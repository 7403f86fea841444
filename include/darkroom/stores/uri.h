#pragma once

#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// The path of a local URI: a plain path, or what follows file:// (with %XX decoded).
/// Errors: kInvalidArgument for s3://, https:// and hf:// (not built yet) and for every other scheme.
Result<std::string> local_path(const std::string& uri);

/// The input files that a URI names, in byte order of their paths:
/// - a file: itself, whatever its name;
/// - a folder: every table file (is_table_path) in it at any depth;
/// - a pattern with *, ?, [...] inside a name, or ** as a whole name for any number of folders: every file that fits.
/// A folder and a pattern skip names that start with "_" or "." (_tmp, _job.json, ...), and of the parts of one item in one folder they
/// take the one that counts (part_name.h).
/// Errors: local_path's; kNotFound when nothing fits.
Result<std::vector<FileInfo>> list_inputs(FileSystem& files, const std::string& uri);
/// The inputs of an image dataset: StoreSet::resolve_image_inputs among the files of one file system.
Result<std::vector<FileInfo>> list_image_inputs(FileSystem& files, const std::string& uri);

}  // namespace darkroom
