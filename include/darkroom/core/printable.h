#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// A foreign text on one line of a log or terminal: control characters become "?", invalid UTF-8 U+FFFD.
std::string printable(std::string_view text);
/// The same on several lines: line feeds and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace darkroom
