#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace darkroom {

// Checksums against accidents, not against people. They use the processor's carry-less multiplication where it has one and tables
// elsewhere: the same value on every processor. `crc` continues a checksum: crc32(b, crc32(a)) is crc32(a followed by b); that of nothing
// is 0. Thread safety: pure functions.

/// CRC-32 of IEEE 802.3 (reflected polynomial 0xedb88320): that of zlib, gzip, PNG and of Parquet's pages.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t crc = 0);
uint32_t crc32(std::string_view text, uint32_t crc = 0);

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4; reflected polynomial 0x82f63b78): that of TFRecord and of stores' checksums.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
uint32_t crc32c(std::string_view text, uint32_t crc = 0);

}  // namespace darkroom
