#pragma once

#include <span>
#include <string>
#include <string_view>

namespace darkroom {

/// The candidate that is most like `name`, or an empty text when none is near (more than a third of its letters differ).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean X?", or an empty text.
std::string suggestion(std::string_view name, std::span<const std::string> candidates);

}  // namespace darkroom
