#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace darkroom {

/// What stands before the digits of an XXH3 hash in a record, where a hash without a name is SHA-256 (docs/formats/commit.md).
inline constexpr const char* kXxh3Name = "xxh3-128:";

/// XXH3 of 128 bits with seed 0, fed in pieces: a checksum that finds every accident at the speed of memory, and no defence against
/// people. Source: the xxHash specification, doc/xxhash_spec.md of xxHash 0.8. Thread safety: one object, one thread.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far: 32 lower-case hex digits, the canonical form (big-endian) that `xxhsum -H2` prints.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
