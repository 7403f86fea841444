#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace darkroom {

/// What words were lately split into, so that a word that comes again is not merged again. A table of fixed size: a new word
/// takes the place of the one with which it shares a slot, and no answer depends on what is in it.
/// Thread safety: one object, one thread.
class WordCache {
 public:
  /// The ids of `word` as encoder number `owner` (from 1 on) split it; empty when they are not here.
  std::span<const int32_t> find(uint32_t owner, std::string_view word, size_t hash) const;
  /// Keeps a copy; words that are too long for a slot are left out. REQUIRES: ids of at least one token.
  void store(uint32_t owner, std::string_view word, size_t hash, std::span<const int32_t> ids);

  static constexpr size_t kNumSlots = 4096;
  static constexpr size_t kMaxWordBytes = 26;
  static constexpr size_t kMaxIds = 8;

 private:
  struct Slot {
    uint32_t owner = 0;  // 0: empty.
    uint8_t num_bytes = 0;
    uint8_t num_ids = 0;
    std::array<char, kMaxWordBytes> bytes;
    std::array<int32_t, kMaxIds> ids;
  };
  static_assert(sizeof(Slot) == 64, "a slot is a cache line");

  std::vector<Slot> slots_ = std::vector<Slot>(kNumSlots);
};

}  // namespace darkroom
