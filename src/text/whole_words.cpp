#include "whole_words.h"

#include <bit>
#include <cstring>

namespace darkroom {
namespace {

template <typename Integer>
uint64_t load(const char* bytes) {
  Integer value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Words of one size up to 8 bytes have one key if and only if they are equal; longer ones share it with those that start alike.
uint64_t key_of(std::string_view word) {
  const size_t size = word.size();
  if (size >= 8) {
    return load<uint64_t>(word.data());
  }
  if (size >= 4) {
    return load<uint32_t>(word.data()) | load<uint32_t>(word.data() + size - 4) << 32;
  }
  return load<uint8_t>(word.data()) | load<uint8_t>(word.data() + size / 2) << 8 | load<uint8_t>(word.data() + size - 1) << 16;
}

size_t hash_of(std::string_view word, uint64_t key) {
  uint64_t hash = (key ^ word.size()) * 0x9E3779B97F4A7C15ULL;
  if (word.size() > 8) {
    hash = (hash ^ hash >> 32 ^ load<uint64_t>(word.data() + word.size() - 8)) * 0x9E3779B97F4A7C15ULL;
  }
  return static_cast<size_t>(hash >> 32);
}

}  // namespace

WordHash hash_word(std::string_view word) {
  const uint64_t key = key_of(word);
  return {key, hash_of(word, key)};
}

WholeWords::WholeWords(const Vocabulary& vocabulary, const BytePairEncoder& encoder) {
  BytePairEncoder::Workspace workspace;
  const auto num_tokens = static_cast<int32_t>(vocabulary.tokens().size());
  slots_.resize(std::bit_ceil(static_cast<size_t>(2 * num_tokens + 2)));
  for (int32_t id = 0; id < num_tokens; ++id) {
    const std::string_view token = vocabulary.tokens()[id];
    if (!token.ends_with(kEndOfWord) || token == kEndOfWord) {
      continue;
    }
    const auto word = token_bytes(token.substr(0, token.size() - kEndOfWord.size()));
    if (!word) {
      continue;
    }
    encoder.encode(*word, workspace);
    if (workspace.ids != std::vector<int32_t>{id}) {
      continue;
    }
    const auto [key, hash] = hash_word(*word);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].size != 0) {
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {key, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(word->size()), id};
    bytes_ += *word;
  }
}

int32_t WholeWords::find(std::string_view word, const WordHash& hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash.hash & mask; slots_[at].size != 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.key == hash.key && slot.size == word.size() &&
        (word.size() <= 8 || std::memcmp(bytes_.data() + slot.offset, word.data(), word.size()) == 0)) {
      return slot.id;
    }
  }
  return -1;
}

}  // namespace darkroom
