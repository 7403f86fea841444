#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace darkroom {

/// Bytes as base64 with padding (RFC 4648, section 4).
std::string encode_base64(std::string_view bytes);

/// What encode_base64 was given; nothing for what is no base64.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace darkroom
