#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace darkroom {

/// "1,234,567".
std::string counted(int64_t value);

/// One line of at most `max_characters`: control characters and ill-formed UTF-8 replaced, what does not fit ends in "...".
std::string one_line(std::string_view text, size_t max_characters);

/// A heading and a table of names and values, escaped.
std::string facts_html(const std::string& title, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace darkroom
