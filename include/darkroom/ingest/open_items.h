#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

/// The items that are being worked on, and which piece of which of them is written next. Pieces arrive in any order and are written in the
/// order of their positions, item by item and side by side.
///
/// A started item has a writer, which costs memory: at most max_started are started at a time, and one of these is kept free for the oldest
/// open item until that is started. So the oldest item can always be written, whatever the others wait for; and a slow piece holds up its
/// own item only. What is ready of the oldest item goes first.
///
/// No thread, no clock, no input or output. Cost: O(log) a call. Thread safety: one thread at a time.
template <typename T>
class OpenItems {
 public:
  /// REQUIRES: both > 0.
  OpenItems(size_t max_open, size_t max_started) : max_open_(max_open), max_started_(max_started) {
    DARKROOM_CHECK(max_open > 0 && max_started > 0, "no item could be open (open, started):", max_open, max_started);
  }

  bool has_room() const { return items_.size() < max_open_; }
  /// Opens an item, younger than all before; returns its number, which counts from 0. REQUIRES: has_room().
  uint64_t open() {
    DARKROOM_CHECK(has_room(), "an item too many is opened (open):", items_.size());
    items_.emplace_hint(items_.end(), next_item_, Item());
    return next_item_++;
  }
  /// Says how many pieces an open item has, once all have been read. REQUIRES: once an item; no piece at or above that number.
  void end(uint64_t item, int64_t num_pieces) {
    Item& ended = find(item);
    const bool fits = num_pieces >= ended.next && (ended.early.empty() || ended.early.rbegin()->first < num_pieces);
    DARKROOM_CHECK(ended.num_pieces < 0 && fits, "an item ends wrongly (item, pieces):", item, num_pieces);
    ended.num_pieces = num_pieces;
    file(item, ended);
  }

  /// Whether a piece that arrives now would wait for more than a writer's turn: for a piece before it, or for its item to be started.
  bool would_wait(uint64_t item, int64_t position) const {
    const auto found = items_.find(item);
    DARKROOM_CHECK(found != items_.end(), "a piece of no open item:", item);
    return position > found->second.ready_end || !(found->second.is_started || may_start(item));
  }
  /// REQUIRES: the item is open; each of its positions arrives once.
  void arrive(uint64_t item, int64_t position, T piece) {
    Item& of = find(item);
    const bool is_new = position >= of.next && (of.num_pieces < 0 || position < of.num_pieces) && !of.early.contains(position);
    DARKROOM_CHECK(is_new, "a piece arrives that cannot (item, position):", item, position);
    of.early.emplace(position, std::move(piece));
    ++num_waiting_;
    while (of.early.contains(of.ready_end)) {
      ++of.ready_end;
    }
    file(item, of);
  }

  /// What a writer does next.
  struct Turn {
    uint64_t item = 0;
    bool is_first = false;   ///< The item is started with this turn.
    std::optional<T> piece;  ///< Nothing: all its pieces are written; the item is to be finished.
  };
  /// The oldest item's that has something to do and nobody at it, if there is one now. An item is one writer's until end_turn() or close().
  bool has_turn() const { return next_ready().has_value(); }
  std::optional<Turn> take() {
    const std::optional<uint64_t> item = next_ready();
    if (!item) {
      return std::nullopt;
    }
    Item& of = find(*item);
    Turn turn{.item = *item, .is_first = !of.is_started, .piece = std::nullopt};
    unfile(*item, of);
    num_started_ += of.is_started ? 0 : 1;
    of.is_started = true;
    of.is_busy = true;
    if (of.next != of.num_pieces) {
      turn.piece.emplace(std::move(of.early.extract(of.early.begin()).mapped()));
      --num_waiting_;
      ++of.next;
    }
    return turn;
  }
  /// The piece is written. REQUIRES: as close().
  void end_turn(uint64_t item) {
    Item& of = find(item);
    DARKROOM_CHECK(of.is_busy, "a turn ends that nobody had (item):", item);
    of.is_busy = false;
    file(item, of);
  }
  /// The item is finished and its writer gone. REQUIRES: it is in a turn of take().
  void close(uint64_t item) {
    const Item& of = find(item);
    DARKROOM_CHECK(of.is_busy && of.next == of.num_pieces, "an item is closed before its end (item, pieces written):", item, of.next);
    items_.erase(item);
    --num_started_;
  }

  /// The oldest item of which some piece has not arrived (or whose number of pieces is not known), and the first such piece.
  std::optional<std::pair<uint64_t, int64_t>> first_cut() const {
    for (const auto& [item, of] : items_) {
      if (of.ready_end != of.num_pieces) {
        return std::pair(item, of.ready_end);
      }
    }
    return std::nullopt;
  }
  size_t num_open() const { return items_.size(); }
  size_t num_started() const { return num_started_; }
  size_t num_waiting() const { return num_waiting_; }  ///< Pieces that have arrived and are not taken.

 private:
  struct Item {
    std::map<int64_t, T> early;
    int64_t next = 0;         // To be written.
    int64_t ready_end = 0;    // All before it have arrived.
    int64_t num_pieces = -1;  // Not known yet.
    bool is_started = false;
    bool is_busy = false;
  };

  Item& find(uint64_t item) {
    const auto found = items_.find(item);
    DARKROOM_CHECK(found != items_.end(), "no item of this number is open:", item);
    return found->second;
  }
  /// Of an item that is not started.
  bool may_start(uint64_t item) const {
    const auto& [oldest, first] = *items_.begin();
    return item == oldest || num_started_ + (first.is_started ? 0 : 1) < max_started_;
  }
  std::optional<uint64_t> next_ready() const {
    std::optional<uint64_t> next;
    if (!ready_started_.empty()) {
      next = *ready_started_.begin();
    }
    if (!ready_new_.empty() && may_start(*ready_new_.begin()) && (!next || *ready_new_.begin() < *next)) {
      next = *ready_new_.begin();
    }
    return next;
  }
  std::set<uint64_t>& ready_of(const Item& of) { return of.is_started ? ready_started_ : ready_new_; }
  void file(uint64_t item, const Item& of) {
    if (!of.is_busy && (of.ready_end > of.next || of.next == of.num_pieces)) {
      ready_of(of).insert(item);
    }
  }
  void unfile(uint64_t item, const Item& of) { ready_of(of).erase(item); }

  const size_t max_open_;
  const size_t max_started_;
  std::map<uint64_t, Item> items_;
  std::set<uint64_t> ready_started_, ready_new_;  // Have something to do and nobody at it; with a writer, without one.
  uint64_t next_item_ = 0;
  size_t num_started_ = 0;
  size_t num_waiting_ = 0;
};

}  // namespace darkroom
