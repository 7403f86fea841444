#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace darkroom {

/// SHA-256 (FIPS 180-4), fed in pieces. Own code because core must build with nothing but a compiler; uses the
/// processor's SHA instructions where it has them. Thread safety: one object, one thread.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// The digest as 64 lower-case hex digits. The object is spent afterwards.
  std::string finish_hex();

 private:
  void absorb(const uint8_t* blocks, size_t num_blocks);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

/// Digest of one buffer as 64 lower-case hex digits.
std::string sha256_hex(std::string_view text);

}  // namespace darkroom
