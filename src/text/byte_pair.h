#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "rank_queue.h"
#include "vocabulary.h"

namespace darkroom {

/// The two ways in which byte-pair encoders apply merges. They differ where one token can be made in two ways.
enum class MergeOrder {
  kOneAtATime,      ///< The package tokenizers: the leftmost pair of the lowest rank, then look again.
  kAllOccurrences,  ///< OpenAI's and open_clip's: all pairs of the lowest rank from left to right, then look again.
};

/// Splits one word into tokens. Thread safety: immutable; the workspace belongs to one thread.
class BytePairEncoder {
 public:
  /// Memory that encode uses again and again.
  struct Workspace {
    static constexpr int32_t kInside = -1;
    struct Symbol {
      int32_t id;         // kInside: no symbol begins at this byte.
      int32_t num_bytes;  // At the first and at the last byte of a symbol; at others nothing that counts.
    };
    std::vector<Symbol> symbols;  // One a byte of the window.
    size_t end = 0;               // Of the symbols whose merges nothing to the right of them can change.
    RankQueue queue;              // Pairs of neighbours that merge, by the position of the left one.
    std::vector<int32_t> ids;
    size_t window_bytes = 4096;  // A long word is merged so many bytes at a time where that is sure to give the same tokens.
  };

  /// A byte without a token of its own counts as `unknown_id`.
  BytePairEncoder(const Vocabulary& vocabulary, int32_t unknown_id, MergeOrder order);

  /// Leaves the tokens of `word` (bytes, not empty) in workspace.ids; of a long word at least the first `num_ids`, which need no
  /// more of it to be read than a little beyond them.
  void encode(std::string_view word, Workspace& workspace, size_t num_ids = SIZE_MAX) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    int32_t rank = 0;
    int32_t merged = 0;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  /// Where a pair of neighbours stands in the order of merges.
  struct Pair {
    int32_t rank;
    int32_t merged;
  };
  struct ShortWord;
  struct Window;

  /// What a token stands for. The first bytes are enough to tell most texts from it.
  struct Meaning {
    uint64_t head = 0;
    uint32_t num_bytes = 0;
    bool ends_word = false;
  };
  /// A token that merges with one before it.
  struct Follower {
    int32_t rank;
    int32_t id;
  };

  void encode_short(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view word, Workspace& workspace, size_t num_ids) const;
  size_t merge_window(const Window& window, Workspace& workspace) const;
  void find_followers(const Vocabulary& vocabulary);
  bool is_known(std::string_view word) const;
  bool may_follow(int32_t id, const Window& window, size_t at, size_t least_bytes) const;
  int32_t rank_across(const Window& window, const Workspace& workspace, size_t least_bytes) const;
  int32_t first_id(std::string_view word, size_t at) const;
  void merge_one(ShortWord& word, size_t at) const;
  void merge_all(ShortWord& word, int32_t rank) const;
  Pair pair_of(int32_t left, int32_t right) const;

  void insert(const Vocabulary::Merge& merge, int32_t rank);
  const Slot* find(int32_t left, int32_t right) const;
  void offer(int32_t position, Workspace& workspace) const;
  void merge(int32_t rank, int32_t position, Workspace& workspace) const;

  MergeOrder order_;
  size_t num_ranks_;
  std::array<int32_t, 256> inner_ids_;  // A byte within a word.
  std::array<int32_t, 256> last_ids_;   // A byte that ends a word.
  std::array<bool, 256> is_inner_{};    // Whether the byte has a token of its own there.
  std::array<bool, 256> is_last_{};
  std::vector<Slot> slots_;            // Open addressing, a power of two of them, at most half full.
  std::vector<Meaning> meanings_;      // By id.
  std::vector<Follower> followers_;    // Of each left id those that merge with it, the lowest rank first.
  std::vector<size_t> follower_ends_;  // By left id.
  bool has_windows_ = true;            // False where a token's text does not say whether it ends the word.
};

}  // namespace darkroom
