#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "darkroom/core/status.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/content_hash.h"

namespace darkroom {

/// The bytes of a shard before its footer on their way into an object: counted and hashed as they pass.
/// REQUIRES: the object outlives it.
class ShardContent {
 public:
  explicit ShardContent(PendingObject& object) : object_(object) {}

  /// Hands the pieces on as one write of the object. Errors: the object's.
  Status write(std::span<const std::span<const std::byte>> pieces) {
    for (const std::span<const std::byte> piece : pieces) {
      hash_.update(piece);
      num_bytes_ += static_cast<int64_t>(piece.size());
    }
    return object_.write(pieces);
  }
  Status write(std::span<const std::byte> bytes) { return write(std::span(&bytes, 1)); }

  /// Where the next byte goes.
  int64_t num_bytes() const { return num_bytes_; }
  /// Of all bytes so far: as ContentHash::hex.
  std::string hash_hex() const { return hash_.hex(); }

 private:
  PendingObject& object_;
  ContentHash hash_;
  int64_t num_bytes_ = 0;
};

}  // namespace darkroom
