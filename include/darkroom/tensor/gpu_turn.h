#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace darkroom {

/// Who works on a GPU, where several parts of a process share it that must not do so at once (paint/recorded_memory.h): one at a time, in
/// the order in which they ask, so that who works piece by piece does not keep the others waiting for its last one. A timed lock for
/// std::unique_lock, not recursive. Thread safety: safe.
class GpuTurn {
 public:
  void lock();
  /// Waits at most so long, then gives up its place.
  bool try_lock_for(std::chrono::milliseconds patience);
  void unlock();

 private:
  bool is_next(uint64_t asker) const { return !is_taken_ && waiting_.front() == asker; }
  void take();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint64_t> waiting_;  // Who asked first comes first.
  uint64_t num_askers_ = 0;
  bool is_taken_ = false;
};

/// Held while the result lives; null: there is nobody to wait for.
inline std::unique_lock<GpuTurn> take_turn(GpuTurn* turn) {
  return turn == nullptr ? std::unique_lock<GpuTurn>() : std::unique_lock(*turn);
}

}  // namespace darkroom
