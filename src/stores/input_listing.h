#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// Whether the names of a path fit a pattern, one a level; "**" stands for any number of levels. Takes time in proportion to the product of
/// both. Pure.
bool path_fits(std::span<const std::string> pattern, std::span<const std::string> names);

/// The files that a place, folder or pattern names, as StoreSet::resolve_inputs says.
Result<std::vector<InputObject>> list_inputs_at(const Location& place, std::stop_token stop);
/// The same as StoreSet::resolve_image_inputs says.
Result<std::vector<InputObject>> list_image_inputs_at(const Location& place, std::stop_token stop);

}  // namespace darkroom
