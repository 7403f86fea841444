#include "darkroom/tensor/gpu_turn.h"

#include <algorithm>

namespace darkroom {

void GpuTurn::lock() {
  std::unique_lock lock(mutex_);
  const uint64_t asker = waiting_.emplace_back(num_askers_++);
  changed_.wait(lock, [&] { return is_next(asker); });
  take();
}

bool GpuTurn::try_lock_for(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const uint64_t asker = waiting_.emplace_back(num_askers_++);
  if (changed_.wait_for(lock, patience, [&] { return is_next(asker); })) {
    take();
    return true;
  }
  std::erase(waiting_, asker);
  changed_.notify_all();
  return false;
}

void GpuTurn::unlock() {
  const std::lock_guard lock(mutex_);
  is_taken_ = false;
  changed_.notify_all();
}

void GpuTurn::take() {
  waiting_.pop_front();
  is_taken_ = true;
}

}  // namespace darkroom
