#pragma once

#include <cstdint>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

// How many weights load_unet, load_vae and load_text_encoder (model_folder.h) would read from a component's folder, or from the file that
// its parent is: those of the files that are read and of no others that lie beside them, and no tensor that is left unread. Reads headers
// only. Errors: those of opening what is loaded. Thread safety: pure.

Result<int64_t> count_stored_unet(const std::string& component_folder);
Result<int64_t> count_stored_vae(const std::string& component_folder);
Result<int64_t> count_stored_text_encoder(const std::string& component_folder);

}  // namespace darkroom
