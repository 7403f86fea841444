#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>

namespace darkroom {

class MemoryBudget;

/// A share of a MemoryBudget that travels with a piece of work and is given back when it is destroyed.
/// Thread safety: one owner at a time. The budget must outlive it.
class MemoryLease {
 public:
  MemoryLease() = default;
  MemoryLease(MemoryLease&& other) noexcept;
  MemoryLease& operator=(MemoryLease&& other) noexcept;
  ~MemoryLease();

  size_t size_bytes() const { return size_bytes_; }
  /// Corrects the share to what the work really holds. Never waits: work inside always gets what it needs to leave.
  void resize(size_t size_bytes);
  void release();

 private:
  friend class MemoryBudget;
  MemoryLease(MemoryBudget* budget, size_t size_bytes) : budget_(budget), size_bytes_(size_bytes) {}

  MemoryBudget* budget_ = nullptr;
  size_t size_bytes_ = 0;
};

/// The bytes that one job may hold in queues and buffers together.
///
/// Work takes memory once, at the door, in the order in which it will leave; whatever is inside may finish without asking again. So
/// the piece that everything waits for always has its memory, and no order of events can deadlock. The limit is exceeded at most by
/// one piece (a piece larger than the whole budget enters alone) and by what resize() adds to the pieces inside.
/// Thread safety: any thread may call anything.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  /// Waits until `size_bytes` fit or nothing at all is leased. Empty when `stop` was requested first.
  std::optional<MemoryLease> acquire(size_t size_bytes, std::stop_token stop);

  size_t limit_bytes() const { return limit_bytes_; }
  size_t used_bytes() const;
  /// The most that was ever leased at once.
  size_t peak_bytes() const;
  /// Threads that wait in acquire().
  size_t num_waiting() const;

 private:
  friend class MemoryLease;
  void change(size_t old_bytes, size_t new_bytes);

  const size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable_any released_;
  size_t used_bytes_ = 0;  // Guarded by mutex_, like all below.
  size_t peak_bytes_ = 0;
  size_t num_waiting_ = 0;
};

/// A quarter of what a machine has: the default of --memory.
size_t default_memory_budget_bytes(int64_t machine_bytes);
/// Of this machine, or of the control group's limit where that is lower.
size_t default_memory_budget_bytes();

}  // namespace darkroom
