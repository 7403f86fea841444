#include "rank_queue.h"

#include <algorithm>
#include <bit>

namespace darkroom {
namespace {

constexpr size_t kWordBits = 64;

}  // namespace

void RankQueue::reset(size_t num_ranks) {
  if (!is_empty() || lists_.size() < num_ranks) {
    lists_.assign(num_ranks, {});
    occupied_.assign((num_ranks + kWordBits - 1) / kWordBits, 0);
  }
  chunks_.clear();
  free_ = kNone;
  lowest_word_ = 0;
  num_positions_ = 0;
}

uint32_t RankQueue::take_chunk() {
  const uint32_t taken = free_ != kNone ? free_ : static_cast<uint32_t>(chunks_.size());
  if (free_ != kNone) {
    free_ = chunks_[taken].next;
  } else {
    chunks_.emplace_back();
  }
  chunks_[taken].next = kNone;
  return taken;
}

void RankQueue::push(int32_t rank, int32_t position) {
  const auto index = static_cast<size_t>(rank);
  List& list = lists_[index];
  if (list.first == kNone) {
    const uint32_t chunk = take_chunk();
    list = {.first = chunk, .last = chunk};
    occupied_[index / kWordBits] |= uint64_t{1} << index % kWordBits;
    lowest_word_ = std::min(lowest_word_, index / kWordBits);
  } else {
    list.is_ascending = list.is_ascending && chunks_[list.last].positions[list.end - 1] <= position;
    if (list.end == kChunkPositions) {
      const uint32_t chunk = take_chunk();
      chunks_[list.last].next = chunk;
      list.last = chunk;
      list.end = 0;
    }
  }
  chunks_[list.last].positions[list.end++] = position;
  ++num_positions_;
}

int32_t RankQueue::lowest_rank() {
  while (occupied_[lowest_word_] == 0) {
    ++lowest_word_;
  }
  return static_cast<int32_t>(lowest_word_ * kWordBits) + std::countr_zero(occupied_[lowest_word_]);
}

int32_t RankQueue::pop(int32_t rank) {
  const auto index = static_cast<size_t>(rank);
  List& list = lists_[index];
  if (!list.is_ascending) {
    sort(list);
  }
  const uint32_t chunk = list.first;
  const int32_t position = chunks_[chunk].positions[list.begin++];
  --num_positions_;
  const bool is_last = chunk == list.last;
  if (list.begin == (is_last ? list.end : kChunkPositions)) {
    list.first = is_last ? kNone : chunks_[chunk].next;
    list.begin = 0;
    chunks_[chunk].next = free_;
    free_ = chunk;
  }
  if (list.first == kNone) {
    occupied_[index / kWordBits] &= ~(uint64_t{1} << index % kWordBits);
  }
  return position;
}

template <typename Visit>
void RankQueue::visit_positions(const List& list, Visit visit) {
  uint32_t begin = list.begin;
  for (uint32_t chunk = list.first; chunk != kNone; chunk = chunks_[chunk].next) {
    const uint32_t end = chunk == list.last ? list.end : kChunkPositions;
    for (uint32_t i = begin; i < end; ++i) {
      visit(chunks_[chunk].positions[i]);
    }
    begin = 0;
  }
}

void RankQueue::sort(List& list) {
  sorted_.clear();
  visit_positions(list, [&](int32_t position) { sorted_.push_back(position); });
  merge_runs();
  auto next = sorted_.begin();
  visit_positions(list, [&](int32_t& position) { position = *next++; });
  list.is_ascending = true;
}

// A natural merge sort. Every merge of a word is applied from left to right, so a list has about as many ascending runs as there
// are merges that make one of its two tokens: how often it is gone through depends on the vocabulary, not on the word's length.
void RankQueue::merge_runs() {
  const auto end = sorted_.end();
  bool is_done = false;
  while (!is_done) {
    auto begin = sorted_.begin();
    auto middle = std::is_sorted_until(begin, end);
    is_done = middle == end;
    while (middle != end) {
      const auto run_end = std::is_sorted_until(middle, end);
      std::inplace_merge(begin, middle, run_end);
      begin = run_end;
      middle = std::is_sorted_until(begin, end);
    }
  }
}

}  // namespace darkroom
