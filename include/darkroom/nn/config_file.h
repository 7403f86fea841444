#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// The JSON object in a file of a model folder (config.json, scheduler_config.json). Python's json writes numbers that are not
/// finite as the bare words NaN, Infinity and -Infinity (diffusers does for a multistep solver); they read as null.
/// Errors: those of reading the file, kCorruptData when it holds no JSON object.
Result<nlohmann::json> read_config_file(FileSystem& files, const std::string& path);

}  // namespace darkroom
