#include "darkroom/core/body_memory.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

size_t& BodyMemory::held_by(uint64_t order) {
  const auto found = held_.find(order);
  DARKROOM_CHECK(found != held_.end(), "a piece that is not inside uses its memory (order):", order);
  return found->second;
}

void BodyMemory::add(size_t& held, size_t bytes) {
  held += bytes;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

/// Answers the oldest questions until one must wait: what makes room, or another piece the oldest, calls this.
void BodyMemory::grant() {
  while (!asking_.empty()) {
    const auto first = asking_.begin();
    const bool fits = used_bytes_ <= limit_bytes_ && first->second.more_bytes <= limit_bytes_ - used_bytes_;
    if (!fits && first->first != held_.begin()->first) {
      return;
    }
    add(held_by(first->first), first->second.more_bytes);
    const std::function<void()> granted = std::move(first->second.granted);
    asking_.erase(first);
    if (granted) {
      granted();
    }
  }
}

void BodyMemory::enter(uint64_t order) {
  const std::lock_guard hold(mutex_);
  const size_t num_before = held_.size();
  held_.emplace_hint(held_.end(), order, 0);  // Nearly always the youngest.
  DARKROOM_CHECK(held_.size() > num_before, "an order entered twice:", order);
}

void BodyMemory::leave(uint64_t order) {
  const std::lock_guard hold(mutex_);
  used_bytes_ -= held_by(order);
  asking_.erase(order);
  held_.erase(order);
  grant();
}

BodyMemory::Answer BodyMemory::ask_locked(uint64_t order, size_t more_bytes, std::function<void()> granted) {
  held_by(order);
  const auto [question, is_new] = asking_.emplace(order, Question{more_bytes, nullptr});
  DARKROOM_CHECK(is_new, "a piece asks again before it was answered (order):", order);
  grant();
  const auto waiting = asking_.find(order);
  if (waiting == asking_.end()) {
    return Answer::kGranted;
  }
  waiting->second.granted = std::move(granted);
  return Answer::kQueued;
}

BodyMemory::Answer BodyMemory::ask(uint64_t order, size_t more_bytes, std::function<void()> granted) {
  const std::lock_guard hold(mutex_);
  return ask_locked(order, more_bytes, std::move(granted));
}

bool BodyMemory::withdraw(uint64_t order) {
  const std::lock_guard hold(mutex_);
  held_by(order);
  const bool was_waiting = asking_.erase(order) == 1;
  grant();
  return was_waiting;
}

bool BodyMemory::wait_for(uint64_t order, size_t more_bytes, std::stop_token stop) {
  if (stop.stop_requested()) {
    return false;
  }
  std::unique_lock lock(mutex_);
  bool is_granted = false;
  const auto tell = [this, &is_granted] {
    is_granted = true;
    granted_.notify_all();
  };
  if (ask_locked(order, more_bytes, tell) == Answer::kGranted || granted_.wait(lock, stop, [&] { return is_granted; })) {
    return true;
  }
  asking_.erase(order);
  grant();
  return false;
}

void BodyMemory::set_held(uint64_t order, size_t bytes) {
  const std::lock_guard hold(mutex_);
  size_t& held = held_by(order);
  used_bytes_ -= held;
  held = 0;
  add(held, bytes);
  grant();
}

size_t BodyMemory::used_bytes() const {
  const std::lock_guard hold(mutex_);
  return used_bytes_;
}

size_t BodyMemory::peak_bytes() const {
  const std::lock_guard hold(mutex_);
  return peak_bytes_;
}

size_t BodyMemory::held_bytes(uint64_t order) const {
  const std::lock_guard hold(mutex_);
  const auto found = held_.find(order);
  DARKROOM_CHECK(found != held_.end(), "a piece that is not inside is asked what it holds (order):", order);
  return found->second;
}

size_t BodyMemory::num_inside() const {
  const std::lock_guard hold(mutex_);
  return held_.size();
}

size_t BodyMemory::num_waiting() const {
  const std::lock_guard hold(mutex_);
  return asking_.size();
}

std::optional<uint64_t> BodyMemory::oldest() const {
  const std::lock_guard hold(mutex_);
  return held_.empty() ? std::nullopt : std::optional(held_.begin()->first);
}

BodyLease::BodyLease(BodyLease&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), order_(other.order_) {}

BodyLease& BodyLease::operator=(BodyLease&& other) noexcept {
  if (this != &other) {
    leave();
    memory_ = std::exchange(other.memory_, nullptr);
    order_ = other.order_;
  }
  return *this;
}

void BodyLease::set_held(size_t bytes) {
  if (memory_ != nullptr) {
    memory_->set_held(order_, bytes);
  }
}

void BodyLease::leave() {
  if (memory_ != nullptr) {
    std::exchange(memory_, nullptr)->leave(order_);
  }
}

}  // namespace darkroom
