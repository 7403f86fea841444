#pragma once

#include <stop_token>
#include <string>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Writes every file below `folder`, under its path within it and in byte order, as one gzip-compressed tar archive (tar_writer.h) at
/// `path`, in one atomic step. Same files, same bytes: neither tar nor gzip holds a time or a name of this machine, and the compressor is
/// libarrow's, which is pinned. Memory: some MB for any size of files. Errors: kAlreadyExists (`path` is never replaced), kNotFound
/// (`folder`, or it holds no file), kCancelled, those of the disk.
Status write_folder_archive(FileSystem& files, const std::string& folder, const std::string& path, const std::stop_token& stop = {});

}  // namespace darkroom
