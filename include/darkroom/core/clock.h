#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <stop_token>
#include <vector>

namespace darkroom {

/// Time as a job sees it, and the only way in which its threads wait for time to pass. What merely decides (a schedule, a time-out, a
/// claim) takes an Instant as an argument and holds no clock. Thread safety: any thread.
class Clock {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  virtual ~Clock() = default;

  /// Never goes back, and knows nothing of dates: for deadlines and durations within the process.
  virtual Instant now() const = 0;
  /// The date, which may jump: for what other machines read or said (expiry of claims, Retry-After, signatures), never for a duration.
  virtual std::chrono::system_clock::time_point wall() const = 0;

  /// Waits until `pred` is true, the instant has come or a stop is requested; returns pred(). Returns at once where one of the three is so
  /// already. `pred` is called with `lock` held and may ask this clock for the time; who makes it true wakes the waiter through `cv`. An
  /// exception of `pred` passes through. REQUIRES: `lock` is held; it guards what `pred` reads.
  virtual bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, std::stop_token stop, Instant until,
                          const std::function<bool()>& pred) = 0;
  /// Waits until the instant has come or a stop is requested. False when a stop was requested.
  bool sleep_until(Instant until, std::stop_token stop);
};

/// The machine's clock. Lives as long as the process.
Clock& system_clock();

/// A clock for tests: time passes only when the test says so. A waiter that is woken by its `cv`, by a stop or by advance() finds the state
/// that was set before; no wake-up is lost, whatever the order of events.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(std::chrono::system_clock::time_point wall = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1));

  Instant now() const override;
  std::chrono::system_clock::time_point wall() const override;
  bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, std::stop_token stop, Instant until,
                  const std::function<bool()>& pred) override;

  /// Lets time pass, of both kinds, and wakes the waiters whose instant has come, and no others. Returns how many these are.
  /// REQUIRES: by >= 0.
  size_t advance(std::chrono::nanoseconds by);
  /// Sets the date alone, as a correction of the machine's clock does.
  void set_wall(std::chrono::system_clock::time_point wall);

  /// Threads within wait_until() whose instant has not come. One that was woken by its `cv` or by a stop counts until it has left.
  size_t num_waiting() const;
  /// Waits until at least `count` threads wait. False when that takes longer than `patience`, which is real time: the test fails then.
  [[nodiscard]] bool await_waiting(size_t count, std::chrono::seconds patience = std::chrono::seconds(60)) const;

 private:
  struct Waiter {
    Instant until;
    std::condition_variable_any* cv;
  };
  void leave(const Waiter& waiter);

  // Taken after the lock of a waiter, never before it.
  mutable std::mutex mutex_;
  mutable std::condition_variable waiters_changed_;
  Instant now_;
  std::chrono::system_clock::time_point wall_;
  std::vector<const Waiter*> waiters_;
};

}  // namespace darkroom
