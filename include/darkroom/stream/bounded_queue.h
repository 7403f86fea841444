#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

/// A first-in first-out queue between threads, bounded in items. (Bytes are bounded at the pipeline's door: MemoryBudget.)
/// It ends when all its producers have said so; consumers then drain what is left.
/// Thread safety: any thread may call anything.
template <typename T>
class BoundedQueue {
 public:
  /// REQUIRES: max_items > 0.
  explicit BoundedQueue(size_t max_items) : max_items_(max_items) { DARKROOM_CHECK(max_items > 0, "a queue must hold at least one item"); }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Both are kept out of line: in a loop that they are inlined into, g++ 12 takes the counted state of a stop token for freed.

  /// Waits while the queue is full. False, with the value dropped, once `stop` was requested or the queue was closed.
  [[gnu::noinline]] bool push(T value, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    const bool may_go_on = not_full_.wait(lock, stop, [&] { return closed_ || values_.size() < max_items_; });
    --num_waiting_;
    if (!may_go_on || closed_ || stop.stop_requested()) {
      return false;
    }
    values_.push_back(std::move(value));
    not_empty_.notify_one();
    return true;
  }

  /// Waits for a value. Empty once `stop` was requested, or the queue was closed and is drained.
  [[gnu::noinline]] std::optional<T> pop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    const bool may_go_on = not_empty_.wait(lock, stop, [&] { return closed_ || !values_.empty(); });
    --num_waiting_;
    if (!may_go_on || stop.stop_requested() || values_.empty()) {
      return std::nullopt;
    }
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    not_full_.notify_one();
    return value;
  }

  /// Announces one more producer; the queue closes when as many have called producer_done().
  void add_producer() {
    std::lock_guard lock(mutex_);
    ++num_producers_;
  }
  void producer_done() {
    std::lock_guard lock(mutex_);
    DARKROOM_CHECK(num_producers_ > 0, "a queue's producer ended that never began");
    if (--num_producers_ == 0) {
      close_locked();
    }
  }
  /// Refuses further values; what is inside can still be popped.
  void close() {
    std::lock_guard lock(mutex_);
    close_locked();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return values_.size();
  }
  size_t max_items() const { return max_items_; }
  /// Threads within push() or pop() that wait.
  size_t num_waiting() const {
    std::lock_guard lock(mutex_);
    return num_waiting_;
  }

 private:
  void close_locked() {
    closed_ = true;
    not_empty_.notify_all();
    not_full_.notify_all();
  }

  const size_t max_items_;
  mutable std::mutex mutex_;
  std::condition_variable_any not_empty_;
  std::condition_variable_any not_full_;
  std::deque<T> values_;  // Guarded by mutex_, like all below.
  int num_producers_ = 0;
  size_t num_waiting_ = 0;
  bool closed_ = false;
};

}  // namespace darkroom
