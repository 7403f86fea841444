#include "whole_words.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace darkroom {
namespace {

uint32_t hash_word(std::string_view word) {
  uint64_t hash = word.size();
  while (!word.empty()) {
    uint64_t chunk = 0;
    const size_t size = std::min<size_t>(word.size(), sizeof chunk);
    std::memcpy(&chunk, word.data(), size);
    hash = (hash ^ chunk) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
    word.remove_prefix(size);
  }
  return static_cast<uint32_t>(hash);
}

}  // namespace

WholeWords::WholeWords(const Vocabulary& vocabulary, const BytePairEncoder& encoder) {
  BytePairEncoder::Workspace workspace;
  const auto num_tokens = static_cast<int32_t>(vocabulary.tokens().size());
  slots_.resize(std::bit_ceil(static_cast<size_t>(2 * num_tokens + 2)));
  for (int32_t id = 0; id < num_tokens; ++id) {
    const std::string_view token = vocabulary.tokens()[id];
    if (!token.ends_with(kEndOfWord) || token == kEndOfWord)
      continue;
    const auto word = token_bytes(token.substr(0, token.size() - kEndOfWord.size()));
    if (!word)
      continue;
    encoder.encode(*word, workspace);
    if (workspace.ids != std::vector<int32_t>{id})
      continue;
    const uint32_t hash = hash_word(*word);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].size != 0)
      at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(word->size()), id, hash};
    bytes_ += *word;
  }
}

int32_t WholeWords::find(std::string_view word) const {
  const uint32_t hash = hash_word(word);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].size != 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && std::string_view(bytes_).substr(slot.offset, slot.size) == word)
      return slot.id;
  }
  return -1;
}

}  // namespace darkroom
