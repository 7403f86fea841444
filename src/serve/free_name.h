#pragma once

#include <string>
#include <vector>

namespace darkroom {

/// The name, or with -2, -3, ... where it is among the others.
std::string free_name(const std::string& name, const std::vector<std::string>& taken);

}  // namespace darkroom
