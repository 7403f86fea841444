#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "darkroom/files/file_system.h"

namespace darkroom {

// Small objects of a store of files. Each is a file, or, where a file system can rename a file only over another, a folder that holds one
// file: of several folders renamed to one name the first wins everywhere, because the others find it not empty.

enum class SmallForm { kFile, kFolder };

/// False when the name is taken. Makes the missing folders above. Durable when it returns true.
Result<bool> create_small_object(FileSystem& files, const std::string& path, std::string_view bytes, SmallForm form);
/// Errors: also kCorruptData for one of more than `max_bytes`.
Result<std::string> read_small_object(FileSystem& files, const std::string& path, int64_t max_bytes);
Status replace_small_object(FileSystem& files, const std::string& path, std::string_view bytes);
/// Fine when it is gone. Errors: also kFailedPrecondition for a folder that is no small object.
Status remove_small_object(FileSystem& files, const std::string& path);

}  // namespace darkroom
