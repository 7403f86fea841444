#pragma once

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "damage_log.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// What the safetensors files of a folder hold, by their headers.
struct WeightsFacts {
  std::vector<std::string> paths;
  int64_t num_bytes = 0;
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;             ///< Elements of all tensors.
  std::map<std::string, int64_t> dtypes;  ///< Tensors by the name of their type.
  bool has_pickle = false;                ///< Pickle files lie beside them; they are never read.

  /// One line for the report.
  std::string to_text() const;
};

/// Looks at the safetensors files in a folder (not below it), or at one file. `.fp16.` variants count only where there is
/// nothing else. Errors: those of SafetensorsFile::open.
Result<WeightsFacts> read_weights_facts(FileSystem& files, const std::string& path);

/// Reads every tensor of the files; a tensor with NaN or infinities, or a damaged file, goes to `damage`.
/// Errors: kCancelled.
Status check_weights(const std::vector<std::string>& paths, const std::stop_token& stop, DamageLog& damage);

}  // namespace darkroom
