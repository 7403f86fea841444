#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// The objects of a metrics.jsonl, each with a number under "step". A last line without its line end is being written, or
/// was torn by a crash, and is left out. Errors: kNotFound; kCorruptData naming the file and the line.
Result<std::vector<nlohmann::json>> read_metrics_lines(FileSystem& files, const std::string& path);

}  // namespace darkroom
