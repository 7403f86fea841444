#include "byte_pair.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr size_t kShortBytes = 32;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t slot_of(uint64_t pair, size_t mask) { return static_cast<size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 32) & mask; }

}  // namespace

BytePairEncoder::BytePairEncoder(const Vocabulary& vocabulary, int32_t unknown_id, MergeOrder order)
    : order_(order), num_ranks_(vocabulary.merge_ids().size()) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string& character = byte_characters()[byte];
    inner_ids_[byte] = vocabulary.find(character).value_or(unknown_id);
    last_ids_[byte] = vocabulary.find(character + std::string(kEndOfWord)).value_or(unknown_id);
  }
  slots_.resize(std::bit_ceil(std::max<size_t>(2 * vocabulary.merge_ids().size(), 2)));
  int32_t rank = 0;
  for (const Vocabulary::Merge& merge : vocabulary.merge_ids()) {
    insert(merge, rank++);
  }
}

void BytePairEncoder::insert(const Vocabulary::Merge& merge, int32_t rank) {
  const size_t mask = slots_.size() - 1;
  const uint64_t pair = pair_key(merge.left, merge.right);
  size_t at = slot_of(pair, mask);
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) {
    at = (at + 1) & mask;
  }
  slots_[at] = {pair, rank, merge.merged};
}

const BytePairEncoder::Slot* BytePairEncoder::find(int32_t left, int32_t right) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t pair = pair_key(left, right);
  for (size_t at = slot_of(pair, mask); slots_[at].pair != kEmpty; at = (at + 1) & mask) {
    if (slots_[at].pair == pair) {
      return &slots_[at];
    }
  }
  return nullptr;
}

// Queues the merge of the symbol at `position` with the next one, if there is such a merge.
void BytePairEncoder::offer(int32_t position, Workspace& workspace) const {
  const auto& symbols = workspace.symbols;
  const auto next = static_cast<size_t>(position + symbols[position].num_bytes);
  if (next == symbols.size()) {
    return;
  }
  if (const Slot* slot = find(symbols[position].id, symbols[next].id)) {
    workspace.queue.push(slot->rank, position);
  }
}

// Applies a merge unless the symbols under it have changed since it was queued; queues those of the new pairs.
void BytePairEncoder::merge(int32_t rank, int32_t position, Workspace& workspace) const {
  auto& symbols = workspace.symbols;
  Workspace::Symbol& left = symbols[position];
  const auto next = static_cast<size_t>(position + left.num_bytes);
  if (left.id == Workspace::kInside || next == symbols.size()) {
    return;
  }
  Workspace::Symbol& right = symbols[next];
  const Slot* slot = find(left.id, right.id);
  if (!slot || slot->rank != rank) {
    return;
  }
  const int32_t num_bytes = left.num_bytes + right.num_bytes;
  right.id = Workspace::kInside;
  left = {slot->merged, num_bytes};
  symbols[position + num_bytes - 1].num_bytes = num_bytes;
  if (position > 0) {
    offer(position - symbols[position - 1].num_bytes, workspace);
  }
  offer(position, workspace);
}

void BytePairEncoder::encode(std::string_view word, Workspace& workspace) const {
  DARKROOM_CHECK(!word.empty(), "an empty word was to be split into tokens");
  if (word.size() <= kShortBytes) {
    encode_short(word, workspace.ids);
  } else {
    encode_long(word, workspace);
  }
}

int32_t BytePairEncoder::first_id(std::string_view word, size_t at) const {
  const auto byte = static_cast<unsigned char>(word[at]);
  return at + 1 < word.size() ? inner_ids_[byte] : last_ids_[byte];
}

// Short words: the symbols and the ranks of their pairs in two rows, which are searched and moved; no queue is worth it.
struct BytePairEncoder::ShortWord {
  size_t size = 0;
  std::array<int32_t, kShortBytes> ids;
  std::array<Pair, kShortBytes> pairs;  // pairs[i]: of ids[i] with ids[i + 1]; the last one never merges.
};

BytePairEncoder::Pair BytePairEncoder::pair_of(int32_t left, int32_t right) const {
  const Slot* slot = find(left, right);
  return slot != nullptr ? Pair{slot->rank, slot->merged} : Pair{kNoRank, 0};
}

void BytePairEncoder::encode_short(std::string_view word, std::vector<int32_t>& ids) const {
  ShortWord symbols;
  symbols.size = word.size();
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.ids[i] = first_id(word, i);
  }
  for (size_t i = 0; i + 1 < word.size(); ++i) {
    symbols.pairs[i] = pair_of(symbols.ids[i], symbols.ids[i + 1]);
  }
  symbols.pairs[word.size() - 1] = {kNoRank, 0};
  while (true) {
    const auto end = symbols.pairs.begin() + static_cast<std::ptrdiff_t>(symbols.size);
    const auto best = std::ranges::min_element(symbols.pairs.begin(), end, {}, &Pair::rank);  // The leftmost of the lowest.
    if (best->rank == kNoRank) {
      break;
    }
    if (order_ == MergeOrder::kOneAtATime) {
      merge_one(symbols, static_cast<size_t>(best - symbols.pairs.begin()));
    } else {
      merge_all(symbols, best->rank);
    }
  }
  ids.assign(symbols.ids.begin(), symbols.ids.begin() + static_cast<std::ptrdiff_t>(symbols.size));
}

void BytePairEncoder::merge_one(ShortWord& word, size_t at) const {
  word.ids[at] = word.pairs[at].merged;
  --word.size;
  for (size_t i = at + 1; i < word.size; ++i) {
    word.ids[i] = word.ids[i + 1];
    word.pairs[i] = word.pairs[i + 1];
  }
  const bool is_last = at + 1 == word.size;
  word.pairs[at] = is_last ? Pair{kNoRank, 0} : pair_of(word.ids[at], word.ids[at + 1]);
  if (at > 0) {
    word.pairs[at - 1] = pair_of(word.ids[at - 1], word.ids[at]);
  }
}

void BytePairEncoder::merge_all(ShortWord& word, int32_t rank) const {
  // A rank belongs to one pair of tokens; a symbol that was merged is not there for the next pair.
  std::array<bool, kShortBytes> is_new{};
  size_t written = 0;
  for (size_t i = 0; i < word.size; ++i, ++written) {
    is_new[written] = word.pairs[i].rank == rank;
    if (is_new[written]) {
      word.ids[written] = word.pairs[i].merged;
      ++i;
    } else {
      word.ids[written] = word.ids[i];
    }
    word.pairs[written] = word.pairs[i];
  }
  word.size = written;
  for (size_t i = 0; i + 1 < word.size; ++i) {
    if (is_new[i] || is_new[i + 1]) {
      word.pairs[i] = pair_of(word.ids[i], word.ids[i + 1]);
    }
  }
  word.pairs[word.size - 1] = {kNoRank, 0};
}

void BytePairEncoder::encode_long(std::string_view word, Workspace& workspace) const {
  auto& [symbols, queue, ids] = workspace;
  symbols.clear();
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.push_back({first_id(word, i), 1});
  }
  queue.reset(num_ranks_);
  const auto size = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < size; ++i) {
    offer(i, workspace);
  }
  while (!queue.is_empty()) {
    const int32_t rank = queue.lowest_rank();
    // A new pair holds a longer token than both of this rank's, so its rank is another one: the list only becomes shorter.
    do {
      merge(rank, queue.pop(rank), workspace);
    } while (order_ == MergeOrder::kAllOccurrences && queue.has(rank));
  }
  ids.clear();
  for (int32_t i = 0; i < size; i += symbols[i].num_bytes) {
    ids.push_back(symbols[i].id);
  }
}

}  // namespace darkroom
