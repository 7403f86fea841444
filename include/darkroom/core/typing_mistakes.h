#pragma once

#include <cstddef>
#include <string_view>

namespace darkroom {

/// How many typing mistakes lie between two words: a letter too many, missing or wrong, or two neighbours swapped, no letter
/// twice (optimal string alignment). Takes the product of both lengths.
size_t typing_mistakes(std::string_view a, std::string_view b);

}  // namespace darkroom
