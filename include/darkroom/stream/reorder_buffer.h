#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

/// Puts values that arrive in any order back into the order of their positions 0, 1, 2, ...
/// It holds what arrived early; the door's MemoryBudget bounds how much that can be.
/// Thread safety: one thread.
template <typename T>
class ReorderBuffer {
 public:
  /// REQUIRES: each position arrives once.
  void insert(int64_t position, T value) {
    const bool is_new = position >= next_position_ && early_.emplace(position, std::move(value)).second;
    DARKROOM_CHECK(is_new, "a position arrived twice:", position);
  }
  /// The value at the next position, when it has arrived.
  std::optional<T> take_next() {
    auto first = early_.begin();
    if (first == early_.end() || first->first != next_position_) {
      return std::nullopt;
    }
    std::optional<T> value(std::move(first->second));
    early_.erase(first);
    ++next_position_;
    return value;
  }
  int64_t next_position() const { return next_position_; }
  size_t num_waiting() const { return early_.size(); }

 private:
  std::map<int64_t, T> early_;
  int64_t next_position_ = 0;
};

}  // namespace darkroom
