#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace darkroom {

/// SHA-1 (FIPS 180-4), fed in pieces: what git names its objects by. Good against damage, not against forgery. Own code, because OpenSSL is
/// not linked. Thread safety: one object, one thread.
class Sha1 {
 public:
  void update(std::span<const std::byte> bytes);
  /// The digest as 40 lower-case hex digits. The object is spent afterwards.
  std::string finish_hex();

 private:
  void absorb(const uint8_t* block);

  std::array<uint32_t, 5> state_{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
  std::array<uint8_t, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace darkroom
