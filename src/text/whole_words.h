#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "byte_pair.h"

namespace darkroom {

/// A word's first bytes and a hash over its size and both its ends.
struct WordHash {
  uint64_t key;  // Words of one size up to 8 bytes have one key if and only if they are equal.
  size_t hash;
};
/// REQUIRES: not empty.
WordHash hash_word(std::string_view word);

/// The words that are one token: a table made once, so that common words cost one look-up and no lock.
/// Thread safety: immutable.
class WholeWords {
 public:
  /// Takes every token with an end-of-word mark that `encoder` gives back for its own bytes.
  WholeWords(const Vocabulary& vocabulary, const BytePairEncoder& encoder);

  /// The token of `word`, or -1. REQUIRES: `hash` is the word's.
  int32_t find(std::string_view word, const WordHash& hash) const;

 private:
  struct Slot {
    uint64_t key = 0;  // Decides for words up to 8 bytes; longer ones are compared in bytes_.
    uint32_t offset = 0;
    uint32_t size = 0;  // 0: empty.
    int32_t id = -1;
  };

  std::string bytes_;        // All words, one after the other.
  std::vector<Slot> slots_;  // Open addressing, a power of two of them, at most half full.
};

}  // namespace darkroom
