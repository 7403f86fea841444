#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// HMAC-SHA256 (RFC 2104), 32 raw bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Whether both are the same, in a time that depends on their lengths alone: of what strangers send to be let in.
bool equal_in_constant_time(std::string_view one, std::string_view other);

}  // namespace darkroom
