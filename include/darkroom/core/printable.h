#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// A foreign text on one line of a log or terminal: control characters become "?", invalid UTF-8 U+FFFD.
std::string printable(std::string_view text);
/// What people are told, with foreign text in it: the same, but line feeds and tabs stay, and addresses lose their secrets.
std::string printable_message(std::string_view message);

}  // namespace darkroom
