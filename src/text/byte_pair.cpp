#include "byte_pair.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr size_t kShortBytes = 32;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Texts that begin alike have one head; so have a text of fewer than eight bytes and one that goes on with zeros.
uint64_t head_of(std::string_view text) {
  uint64_t head = 0;
  std::memcpy(&head, text.data(), std::min(text.size(), sizeof head));
  return head;
}

size_t slot_of(uint64_t pair, size_t mask) { return static_cast<size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 32) & mask; }

}  // namespace

BytePairEncoder::BytePairEncoder(const Vocabulary& vocabulary, int32_t unknown_id, MergeOrder order)
    : order_(order), num_ranks_(vocabulary.merge_ids().size()) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string& character = byte_characters()[byte];
    const std::optional<int32_t> inner = vocabulary.find(character);
    const std::optional<int32_t> last = vocabulary.find(character + std::string(kEndOfWord));
    inner_ids_[byte] = inner.value_or(unknown_id);
    last_ids_[byte] = last.value_or(unknown_id);
    is_inner_[byte] = inner.has_value();
    is_last_[byte] = last.has_value();
  }
  slots_.resize(std::bit_ceil(std::max<size_t>(2 * vocabulary.merge_ids().size(), 2)));
  int32_t rank = 0;
  for (const Vocabulary::Merge& merge : vocabulary.merge_ids()) {
    insert(merge, rank++);
  }
  find_followers(vocabulary);
}

void BytePairEncoder::find_followers(const Vocabulary& vocabulary) {
  for (const std::string& token : vocabulary.tokens()) {
    const bool ends_word = token.ends_with(kEndOfWord);
    const std::string bytes =
        token_bytes(std::string_view(token).substr(0, token.size() - (ends_word ? kEndOfWord.size() : 0))).value_or("");
    meanings_.push_back({.head = head_of(bytes), .num_bytes = static_cast<uint32_t>(bytes.size()), .ends_word = ends_word});
  }
  std::vector<std::pair<int32_t, Follower>> pairs;  // With the token before it.
  for (const Vocabulary::Merge& merge : vocabulary.merge_ids()) {
    // "<" and "/w>" make the mark's text within a word.
    has_windows_ = has_windows_ && meanings_[merge.merged].ends_word == meanings_[merge.right].ends_word;
    pairs.emplace_back(merge.left, Follower{find(merge.left, merge.right)->rank, merge.right});
  }
  std::ranges::sort(pairs, {}, [](const auto& pair) { return std::pair(pair.first, pair.second.rank); });
  follower_ends_.assign(meanings_.size(), 0);
  for (const auto& [left, follower] : pairs) {
    followers_.push_back(follower);
    ++follower_ends_[left];
  }
  std::partial_sum(follower_ends_.begin(), follower_ends_.end(), follower_ends_.begin());
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
  if (next >= workspace.end) {
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
  if (left.id == Workspace::kInside || static_cast<size_t>(position + left.num_bytes) >= workspace.end) {
    return;
  }
  const auto next = static_cast<size_t>(position + left.num_bytes);
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

void BytePairEncoder::encode(std::string_view word, Workspace& workspace, size_t num_ids) const {
  DARKROOM_CHECK(!word.empty(), "an empty word was to be split into tokens");
  if (word.size() <= kShortBytes) {
    encode_short(word, workspace.ids);
  } else {
    encode_long(word, workspace, num_ids);
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

// A part of a long word: the tokens before `begin` are known, and no merge crosses that place.
struct BytePairEncoder::Window {
  std::string_view word;
  size_t begin;
  size_t end;

  bool ends_word() const { return end == word.size(); }
};

bool BytePairEncoder::is_known(std::string_view word) const {
  const auto is_inner = [&](char byte) { return is_inner_[static_cast<unsigned char>(byte)]; };
  return std::ranges::all_of(word.substr(0, word.size() - 1), is_inner) && is_last_[static_cast<unsigned char>(word.back())];
}

bool BytePairEncoder::may_follow(int32_t id, const Window& window, size_t at, size_t least_bytes) const {
  const Meaning& meaning = meanings_[static_cast<size_t>(id)];
  if (meaning.num_bytes < least_bytes || at + meaning.num_bytes > window.word.size() ||
      meaning.ends_word != (at + meaning.num_bytes == window.word.size())) {
    return false;
  }
  return head_of(window.word.substr(at, std::min<size_t>(meaning.num_bytes, sizeof meaning.head))) == meaning.head;
}

// The lowest rank with which the last symbol before workspace.end may ever merge with what follows there: any token of the word's text
// from there on that holds at least `least_bytes`, because the symbol that stands there now can only grow.
int32_t BytePairEncoder::rank_across(const Window& window, const Workspace& workspace, size_t least_bytes) const {
  if (workspace.end == 0 || (workspace.end == workspace.symbols.size() && window.ends_word())) {
    return kNoRank;
  }
  const size_t last = workspace.end - static_cast<size_t>(workspace.symbols[workspace.end - 1].num_bytes);
  const auto left = static_cast<size_t>(workspace.symbols[last].id);
  for (size_t i = left == 0 ? 0 : follower_ends_[left - 1]; i < follower_ends_[left]; ++i) {
    if (may_follow(followers_[i].id, window, window.begin + workspace.end, least_bytes)) {
      return followers_[i].rank;
    }
  }
  return kNoRank;
}

// Merges the window's symbols as far as nothing to the right of it can change that, and gives how many bytes from its beginning are done:
// their tokens are those of the whole word. A symbol's merge comes before one across workspace.end as long as its rank is lower (within one
// rank the left one is first). Where it is not, the last symbol may be taken by the right side, and the end draws back before it.
size_t BytePairEncoder::merge_window(const Window& window, Workspace& workspace) const {
  auto& symbols = workspace.symbols;
  auto& queue = workspace.queue;
  symbols.clear();
  for (size_t i = window.begin; i < window.end; ++i) {
    symbols.push_back({first_id(window.word, i), 1});
  }
  workspace.end = symbols.size();
  queue.reset(num_ranks_);
  for (size_t i = 0; i < symbols.size(); ++i) {
    offer(static_cast<int32_t>(i), workspace);
  }
  size_t least_bytes = 1;
  int32_t across = rank_across(window, workspace, least_bytes);
  const auto draw_back = [&] {
    least_bytes = static_cast<size_t>(symbols[workspace.end - 1].num_bytes);
    workspace.end -= least_bytes;
    across = rank_across(window, workspace, least_bytes);
  };
  while (workspace.end > 0 && (!queue.is_empty() || across != kNoRank)) {
    const int32_t rank = queue.is_empty() ? kNoRank : queue.lowest_rank();
    if (across < rank) {
      draw_back();
      continue;
    }
    const int32_t last_bytes = symbols[workspace.end - 1].num_bytes;
    // A new pair holds a longer token than both of this rank's, so its rank is another one: the list only becomes shorter.
    do {
      merge(rank, queue.pop(rank), workspace);
    } while (order_ == MergeOrder::kAllOccurrences && queue.has(rank));
    if (symbols[workspace.end - 1].num_bytes != last_bytes) {
      across = rank_across(window, workspace, least_bytes);
    } else if (across == rank && order_ == MergeOrder::kAllOccurrences) {
      draw_back();  // The same pass may go on across the end.
    }
  }
  return workspace.end;
}

void BytePairEncoder::encode_long(std::string_view word, Workspace& workspace, size_t num_ids) const {
  workspace.ids.clear();
  size_t window_bytes = has_windows_ && is_known(word) ? workspace.window_bytes : word.size();
  for (size_t begin = 0; begin < word.size() && workspace.ids.size() < num_ids;) {
    const Window window{word, begin, std::min(begin + window_bytes, word.size())};
    const size_t num_done = merge_window(window, workspace);
    if (num_done < (window.end - begin) / 2 || num_done == 0) {
      window_bytes *= 2;  // Chains of merges that long are made by hand. All of them together cost no more than the last one.
      continue;
    }
    for (size_t i = 0; i < num_done; i += static_cast<size_t>(workspace.symbols[i].num_bytes)) {
      workspace.ids.push_back(workspace.symbols[i].id);
    }
    begin += num_done;
  }
}

}  // namespace darkroom
