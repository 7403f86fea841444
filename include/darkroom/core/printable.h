#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// A foreign text on one line of a log or terminal: control characters become "?", invalid UTF-8 U+FFFD.
std::string printable(std::string_view text);

}  // namespace darkroom
