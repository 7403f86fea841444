#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/slices/slice_server.h"

namespace darkroom {

/// A slice that a connection asked for.
struct SliceJob {
  uint64_t connection = 0;
  uint64_t slice = 0;
  std::vector<int64_t> rows = {};
};

/// The threads that make slices, in the order in which these were asked for. Thread safety: any thread.
class SliceWorkers {
 public:
  /// Gets the frame that answers a job, on the worker's thread.
  using Done = std::function<void(uint64_t connection, std::string frame)>;

  /// `rested`: a worker has nothing more to answer for.
  SliceWorkers(int num_workers, SliceMaker make, Done done, std::function<void()> rested);
  /// Waits for the slices that are being made.
  ~SliceWorkers();

  void add(SliceJob job);
  /// Drops what the connection asked for and nobody began.
  void forget(uint64_t connection);
  /// Drops all that nobody began.
  void forget_all();
  /// No job waits or is being made.
  bool is_idle() const;
  SliceServerCounts counts() const;
  /// When a slice was begun or made last.
  std::chrono::steady_clock::time_point last_progress() const;

 private:
  using Clock = std::chrono::steady_clock;

  void run(int worker, const std::stop_token& stop);
  void answer_whatever_comes(int worker, const SliceJob& job);
  std::string answer(int worker, const SliceJob& job);
  std::string frame_of(const SliceJob& job, const Result<std::string>& made) const;

  const SliceMaker make_;
  const Done done_;
  const std::function<void()> rested_;
  const Clock::time_point began_ = Clock::now();
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<SliceJob> jobs_;  // Guarded by mutex_, like all below.
  int num_busy_ = 0;
  Clock::time_point last_progress_ = Clock::now();
  SliceServerCounts counts_;
  std::vector<std::jthread> threads_;  // Last: they use all above.
};

}  // namespace darkroom
