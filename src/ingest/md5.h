#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace darkroom {

/// The MD5 of bytes (RFC 1321): to find pictures in lists that others made with it, no defence against people.
std::array<std::byte, 16> md5(std::span<const std::byte> bytes);

}  // namespace darkroom
