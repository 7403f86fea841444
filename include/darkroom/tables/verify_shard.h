#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Reads a whole shard again and compares it with its own record: the content hash in kShardKey, the footer's own hash. Knows both versions
/// of the format (docs/formats/parquet.md).
/// Errors: kCorruptData naming the file and what differs, or when it is no shard of ours; kNotFound.
Status verify_shard(FileSystem& files, const std::string& path);

}  // namespace darkroom
