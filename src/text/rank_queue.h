#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace darkroom {

/// Positions in a word, each with the rank of a merge: the lowest rank comes first, within a rank the leftmost position.
/// With a fixed number of ranks a push and a pop take constant time on average, unlike a heap's. Thread safety: none.
class RankQueue {
 public:
  /// Empties the queue and makes room for the ranks 0 to num_ranks - 1.
  void reset(size_t num_ranks);

  bool is_empty() const { return num_positions_ == 0; }
  bool has(int32_t rank) const { return lists_[static_cast<size_t>(rank)].first != kNone; }
  void push(int32_t rank, int32_t position);
  /// REQUIRES: not empty.
  int32_t lowest_rank();
  /// Takes the leftmost position of a rank. REQUIRES: has(rank).
  int32_t pop(int32_t rank);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kChunkPositions = 15;  // A chunk is a line of the processor's cache.

  struct Chunk {
    std::array<int32_t, kChunkPositions> positions;
    uint32_t next;  // Of the list, or of those that are free.
  };
  /// The positions of one rank, from `begin` of the first chunk to `end` of the last one.
  struct List {
    uint32_t first = kNone;  // kNone: empty. Indices of chunks_.
    uint32_t last = kNone;
    uint16_t begin = 0;
    uint16_t end = 0;
    bool is_ascending = true;
  };

  uint32_t take_chunk();
  void sort(List& list);
  void merge_runs();
  template <typename Visit>
  void visit_positions(const List& list, Visit visit);

  std::vector<Chunk> chunks_;
  uint32_t free_ = kNone;           // The first chunk that no list uses.
  std::vector<List> lists_;         // One a rank.
  std::vector<uint64_t> occupied_;  // One bit a rank: its list holds something.
  std::vector<int32_t> sorted_;     // Positions of the list that is being sorted.
  size_t lowest_word_ = 0;          // No word of occupied_ before it has a bit.
  size_t num_positions_ = 0;
};

}  // namespace darkroom
