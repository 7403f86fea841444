#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "darkroom/core/metrics.h"

namespace darkroom {

/// What a stage has done up to a moment.
struct StageSnapshot {
  std::string name;
  int num_workers = 0;
  int64_t num_rows = 0;
  int64_t num_bytes = 0;
  // Of all workers together, up to their last change from one to another.
  double busy_seconds = 0;     ///< At work.
  double blocked_seconds = 0;  ///< Waiting for room: in the output or in memory.
  double starved_seconds = 0;  ///< Waiting for input.
  double cpu_seconds = 0;      ///< Processor time of the workers that have ended; threads of their own that they start do not count.
  size_t queue_depth = 0;      ///< Pieces waiting before the stage.
  size_t queue_capacity = 0;   ///< 0 for a source.
};

/// What a worker spends its time on.
enum class WorkerState { kBusy, kBlocked, kStarved };

/// Counters of one stage. Thread safety: any thread may count and read.
class StageStats {
 public:
  /// Counts also in `metrics` (docs/metrics.md), where stages of one name share their numbers; null: nowhere else. It outlives this.
  StageStats(std::string name, int num_workers, MetricsRegistry* metrics = nullptr);

  void count(int64_t num_rows, int64_t num_bytes);
  void add(WorkerState state, std::chrono::nanoseconds duration);
  void add_cpu(std::chrono::nanoseconds duration) { cpu_seconds_.add(duration); }
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
  struct Shared {
    Counter* rows = nullptr;
    Counter* bytes = nullptr;
    std::array<SecondsCounter*, 3> seconds{};  // By WorkerState, as below.
  };
  Shared shared_;  // Of the registry.
  Counter num_rows_;
  Counter num_bytes_;
  std::array<SecondsCounter, 3> seconds_;
  SecondsCounter cpu_seconds_;
};

/// Shares out one worker's time: what passes is work, except within waiting(). Each change is counted at once, so that a worker of many
/// hours shows what it does meanwhile. Thread safety: one worker.
class WorkerTimer {
 public:
  explicit WorkerTimer(StageStats& stats) : stats_(stats), since_(std::chrono::steady_clock::now()) {}
  ~WorkerTimer() {
    pass(WorkerState::kBusy);
    stats_.add_cpu(cpu_of_this_thread() - cpu_at_start_);
  }
  WorkerTimer(const WorkerTimer&) = delete;
  WorkerTimer& operator=(const WorkerTimer&) = delete;

  template <typename Wait>
  auto waiting(WorkerState state, Wait wait) {
    pass(WorkerState::kBusy);
    auto result = wait();
    pass(state);
    return result;
  }

 private:
  void pass(WorkerState state) {
    const auto now = std::chrono::steady_clock::now();
    stats_.add(state, now - since_);
    since_ = now;
  }

  static std::chrono::nanoseconds cpu_of_this_thread();

  StageStats& stats_;
  std::chrono::steady_clock::time_point since_;
  const std::chrono::nanoseconds cpu_at_start_ = cpu_of_this_thread();
};

}  // namespace darkroom
