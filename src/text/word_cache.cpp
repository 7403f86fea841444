#include "word_cache.h"

#include <algorithm>
#include <cstring>

namespace darkroom {

std::span<const int32_t> WordCache::find(uint32_t owner, std::string_view word, size_t hash) const {
  const Slot& slot = slots_[hash % kNumSlots];
  const bool is_it = slot.owner == owner && slot.num_bytes == word.size() && std::memcmp(slot.bytes.data(), word.data(), word.size()) == 0;
  return is_it ? std::span(slot.ids).first(slot.num_ids) : std::span<const int32_t>();
}

void WordCache::store(uint32_t owner, std::string_view word, size_t hash, std::span<const int32_t> ids) {
  if (word.size() > kMaxWordBytes || ids.size() > kMaxIds) {
    return;
  }
  Slot& slot = slots_[hash % kNumSlots];
  slot.owner = owner;
  slot.num_bytes = static_cast<uint8_t>(word.size());
  slot.num_ids = static_cast<uint8_t>(ids.size());
  std::ranges::copy(word, slot.bytes.begin());
  std::ranges::copy(ids, slot.ids.begin());
}

}  // namespace darkroom
