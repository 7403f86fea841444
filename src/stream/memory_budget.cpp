#include "darkroom/stream/memory_budget.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/machine.h"

namespace darkroom {

MemoryLease::MemoryLease(MemoryLease&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MemoryLease& MemoryLease::operator=(MemoryLease&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

MemoryLease::~MemoryLease() { release(); }

void MemoryLease::resize(size_t size_bytes) {
  if (budget_ != nullptr) {
    budget_->change(size_bytes_, size_bytes);
    size_bytes_ = size_bytes;
  }
}

void MemoryLease::release() {
  resize(0);
  budget_ = nullptr;
}

std::optional<MemoryLease> MemoryBudget::acquire(size_t size_bytes, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return used_bytes_ == 0 || (size_bytes <= limit_bytes_ && used_bytes_ <= limit_bytes_ - size_bytes); };
  ++num_waiting_;
  const bool may_enter = released_.wait(lock, stop, fits);
  --num_waiting_;
  if (!may_enter) {
    return std::nullopt;
  }
  used_bytes_ += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return MemoryLease(this, size_bytes);
}

void MemoryBudget::change(size_t old_bytes, size_t new_bytes) {
  std::lock_guard lock(mutex_);
  used_bytes_ = used_bytes_ - old_bytes + new_bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  if (new_bytes < old_bytes) {
    released_.notify_all();
  }
}

size_t MemoryBudget::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t MemoryBudget::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_bytes_;
}

size_t MemoryBudget::num_waiting() const {
  std::lock_guard lock(mutex_);
  return num_waiting_;
}

size_t default_memory_budget_bytes(int64_t machine_bytes) { return static_cast<size_t>(machine_bytes) / 4; }

size_t default_memory_budget_bytes() { return default_memory_budget_bytes(usable_memory_bytes()); }

}  // namespace darkroom
