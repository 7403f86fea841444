#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace darkroom {

/// `text` with each %XX as the byte that it stands for (RFC 3986, section 2.1). Nothing when a % is followed by anything else, and for
/// control characters, escaped or not. Pure.
std::optional<std::string> decode_escapes(std::string_view text);

}  // namespace darkroom
