#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// Whether NVIDIA's driver runs here, so that the machine has a GPU of NVIDIA: by the files that the driver makes below `root`.
bool has_nvidia_driver(const std::string& root = "/");

/// What to do on a machine with NVIDIA's driver where the plugin does not load, from what the loader said: get the plugin, where its own
/// file is missing, or its libraries.
std::string gpu_advice(std::string_view loader_error);

}  // namespace darkroom
