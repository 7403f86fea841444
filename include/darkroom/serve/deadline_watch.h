#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "darkroom/core/clock.h"
#include "darkroom/core/status.h"

namespace darkroom {

/// What whoever asked is told of a deadline that has passed: kUnavailable.
Status past_deadline();

/// Says of what is watched that its deadline has passed, on a thread of its own: however busy those are who work, nobody is told later than
/// that. Thread safety: any thread.
class DeadlineWatch {
 public:
  /// The clock outlives this.
  explicit DeadlineWatch(Clock& clock);
  /// stop()s.
  ~DeadlineWatch();
  DeadlineWatch(const DeadlineWatch&) = delete;
  DeadlineWatch& operator=(const DeadlineWatch&) = delete;

  /// Calls `late` once the deadline has passed, unless it is removed before: by the watch's thread, without its lock. It must be quick.
  /// What it throws is logged. Returns a number for remove().
  uint64_t add(Clock::Instant deadline, std::function<void()> late);
  /// Whether it was still watched: `late` was not called and never will be. False: it was called, or is being called.
  bool remove(uint64_t number);
  /// Returns once no `late` runs; from now on none is called. May be called twice, not by two threads at once.
  void stop();

 private:
  using Key = std::pair<Clock::Instant, uint64_t>;  // Deadline, then the order in which they were added.
  void run(const std::stop_token& stop);

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::map<Key, std::function<void()>> watched_;
  std::map<uint64_t, Clock::Instant> deadlines_;  // Of watched_, by number.
  uint64_t num_added_ = 0;
  std::jthread thread_;  // Last: it uses everything else.
};

}  // namespace darkroom
