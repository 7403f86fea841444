#include "darkroom/serve/deadline_watch.h"

#include <exception>

#include "darkroom/core/log.h"

namespace darkroom {

Status past_deadline() { return Status::unavailable("the request was not done by its deadline"); }

DeadlineWatch::DeadlineWatch(Clock& clock) : clock_(clock), thread_([this](const std::stop_token& stop) { run(stop); }) {}

DeadlineWatch::~DeadlineWatch() { stop(); }

void DeadlineWatch::stop() {
  thread_.request_stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

uint64_t DeadlineWatch::add(Clock::Instant deadline, std::function<void()> late) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = num_added_++;
  deadlines_.emplace(number, deadline);
  const auto added = watched_.emplace(Key(deadline, number), std::move(late)).first;
  if (added == watched_.begin()) {
    changed_.notify_all();
  }
  return number;
}

bool DeadlineWatch::remove(uint64_t number) {
  std::function<void()> late;  // What it holds is let go without the lock.
  const std::lock_guard lock(mutex_);
  const auto found = deadlines_.find(number);
  if (found == deadlines_.end()) {
    return false;
  }
  const auto watched = watched_.find(Key(found->second, number));
  late.swap(watched->second);
  watched_.erase(watched);
  deadlines_.erase(found);
  return true;
}

// While nothing is watched it does not wait for time to pass.
void DeadlineWatch::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !watched_.empty(); }) && !stop.stop_requested()) {
    const Clock::Instant next = watched_.begin()->first.first;
    clock_.wait_until(lock, changed_, stop, next, [&] { return watched_.empty() || watched_.begin()->first.first < next; });
    if (stop.stop_requested()) {
      return;
    }
    const auto first = watched_.begin();
    if (first == watched_.end() || first->first.first > clock_.now()) {
      continue;
    }
    std::function<void()> late = std::move(first->second);
    deadlines_.erase(first->first.second);
    watched_.erase(first);
    lock.unlock();
    try {
      late();
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a deadline that has passed could not be told: {}", failure.what());
    }
    late = nullptr;
    lock.lock();
  }
}

}  // namespace darkroom
