#pragma once

#include <string>

#include "darkroom/image/transform.h"

namespace darkroom {

/// The options that flags of these names give. Raises what is wrong with them. REQUIRES: the GIL is held.
TransformOptions transform_of_names(int resolution, const std::string& resize, const std::string& crop, const std::string& orientation);

}  // namespace darkroom
