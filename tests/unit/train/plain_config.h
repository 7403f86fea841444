#pragma once

#include <string>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// TrainingState::save_config of a network that is no component of a model.
inline Status save_plain_config(FileSystem& files, const std::string& folder) {
  return write_file_atomic(files, folder + "/config.json", "{}\n");
}

}  // namespace darkroom
