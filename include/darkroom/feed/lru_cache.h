#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

namespace darkroom {

/// Keeps the values used last within a budget of bytes; the newest one stays even if it is larger than the budget.
/// Thread safety: one object, one thread.
template <typename Value>
class LruCache {
 public:
  explicit LruCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// A null pointer when it is not held.
  std::shared_ptr<const Value> find(int64_t key) {
    const auto found = places_.find(key);
    if (found == places_.end()) {
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  /// REQUIRES: the key is not held.
  std::shared_ptr<const Value> insert(int64_t key, Value value, int64_t num_bytes) {
    entries_.push_front({key, num_bytes, std::make_shared<const Value>(std::move(value))});
    places_[key] = entries_.begin();
    num_bytes_ += num_bytes;
    while (num_bytes_ > max_bytes_ && entries_.size() > 1) {
      num_bytes_ -= entries_.back().num_bytes;
      places_.erase(entries_.back().key);
      entries_.pop_back();
    }
    return entries_.front().value;
  }

  /// Fine when it is not held.
  void erase(int64_t key) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      num_bytes_ -= found->second->num_bytes;
      entries_.erase(found->second);
      places_.erase(found);
    }
  }

  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Entry {
    int64_t key;
    int64_t num_bytes;
    std::shared_ptr<const Value> value;  // Shared with whoever reads it while it is thrown out.
  };

  int64_t max_bytes_;
  int64_t num_bytes_ = 0;
  std::list<Entry> entries_;  // The one used last first.
  std::unordered_map<int64_t, typename std::list<Entry>::iterator> places_;
};

}  // namespace darkroom
