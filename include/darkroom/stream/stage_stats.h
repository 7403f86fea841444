#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace darkroom {

/// What a stage has done up to a moment.
struct StageSnapshot {
  std::string name;
  int num_workers = 0;
  int64_t num_rows = 0;
  int64_t num_bytes = 0;
  double busy_seconds = 0;    ///< Of all workers together: working, neither waiting for input nor for room in the output.
  size_t queue_depth = 0;     ///< Pieces waiting before the stage.
  size_t queue_capacity = 0;  ///< 0 for a source.
};

/// Counters of one stage. Thread safety: any thread may count and read.
class StageStats {
 public:
  StageStats(std::string name, int num_workers) : name_(std::move(name)), num_workers_(num_workers) {}

  void count(int64_t num_rows, int64_t num_bytes) {
    num_rows_.fetch_add(num_rows, std::memory_order_relaxed);
    num_bytes_.fetch_add(num_bytes, std::memory_order_relaxed);
  }
  void add_busy(std::chrono::nanoseconds duration) { busy_nanoseconds_.fetch_add(duration.count(), std::memory_order_relaxed); }
  /// REQUIRES: called before the stage starts.
  void watch_queue(std::function<size_t()> depth, size_t capacity) {
    queue_depth_ = std::move(depth);
    queue_capacity_ = capacity;
  }
  StageSnapshot snapshot() const;
  const std::string& name() const { return name_; }
  int num_workers() const { return num_workers_; }

 private:
  const std::string name_;
  const int num_workers_;
  std::function<size_t()> queue_depth_;
  size_t queue_capacity_ = 0;
  std::atomic<int64_t> num_rows_ = 0;
  std::atomic<int64_t> num_bytes_ = 0;
  std::atomic<int64_t> busy_nanoseconds_ = 0;
};

}  // namespace darkroom
