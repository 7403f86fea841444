#include "darkroom/core/clock.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

class SystemClock final : public Clock {
 public:
  Instant now() const override { return std::chrono::steady_clock::now(); }
  std::chrono::system_clock::time_point wall() const override { return std::chrono::system_clock::now(); }
  bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, std::stop_token stop, Instant until,
                  const std::function<bool()>& pred) override {
    return cv.wait_until(lock, std::move(stop), until, std::cref(pred));
  }
};

/// Two locks that a condition variable lets go and takes back as one.
struct BothLocks {
  std::unique_lock<std::mutex>& of_waiter;
  std::unique_lock<std::mutex>& of_clock;

  void lock() {
    of_waiter.lock();
    of_clock.lock();
  }
  void unlock() {
    of_clock.unlock();
    of_waiter.unlock();
  }
};

}  // namespace

bool Clock::sleep_until(Instant until, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any cv;
  std::unique_lock lock(mutex);
  wait_until(lock, cv, stop, until, [] { return false; });
  return !stop.stop_requested();
}

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

// An hour after the clock's zero, so that a test may take some time off.
FakeClock::FakeClock(std::chrono::system_clock::time_point wall) : now_(std::chrono::hours(1)), wall_(wall) {}

Clock::Instant FakeClock::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

std::chrono::system_clock::time_point FakeClock::wall() const {
  const std::lock_guard lock(mutex_);
  return wall_;
}

void FakeClock::leave(const Waiter& waiter) {
  const std::lock_guard lock(mutex_);
  std::erase(waiters_, &waiter);
}

// A waiter holds the clock's lock from its look at the time until it waits, and takes it before it leaves. So whoever holds that lock finds
// each waiter either before its look or asleep on a `cv` that exists: a wake-up reaches it, and what it points to lives.
bool FakeClock::wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, std::stop_token stop, Instant until,
                           const std::function<bool()>& pred) {
  const Waiter waiter{until, &cv};
  const std::stop_callback wake(stop, [&] {
    const std::lock_guard clock_lock(mutex_);
    cv.notify_all();
  });
  struct Leaving {
    FakeClock& clock;
    const Waiter& waiter;
    ~Leaving() { clock.leave(waiter); }
  };
  const Leaving leaving{*this, waiter};
  while (!pred()) {
    std::unique_lock clock_lock(mutex_);
    if (now_ >= until || stop.stop_requested()) {
      return false;
    }
    if (std::find(waiters_.begin(), waiters_.end(), &waiter) == waiters_.end()) {
      waiters_.push_back(&waiter);
      waiters_changed_.notify_all();
    }
    BothLocks both{lock, clock_lock};
    cv.wait(both);
  }
  return true;
}

size_t FakeClock::advance(std::chrono::nanoseconds by) {
  const std::lock_guard lock(mutex_);
  DARKROOM_CHECK(by.count() >= 0, "time does not go back (nanoseconds):", by.count());
  now_ += by;
  wall_ += std::chrono::duration_cast<std::chrono::system_clock::duration>(by);
  return std::erase_if(waiters_, [this](const Waiter* waiter) {
    const bool is_due = waiter->until <= now_;
    if (is_due) {
      waiter->cv->notify_all();
    }
    return is_due;
  });
}

void FakeClock::set_wall(std::chrono::system_clock::time_point wall) {
  const std::lock_guard lock(mutex_);
  wall_ = wall;
}

size_t FakeClock::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiters_.size();
}

bool FakeClock::await_waiting(size_t count, std::chrono::seconds patience) const {
  std::unique_lock lock(mutex_);
  return waiters_changed_.wait_for(lock, patience, [&] { return waiters_.size() >= count; });
}

}  // namespace darkroom
