#pragma once

#include <string>
#include <vector>

namespace darkroom {

/// What a column of an input is called beside one of ours that has its name: the name behind "input_", as many of them as make it none of
/// `names`.
std::string input_name(const std::string& name, const std::vector<std::string>& names);

}  // namespace darkroom
