#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace darkroom {

/// Runs tasks in threads of which one goes at a time, so that every order in which their steps can happen is tried, or drawn by a seed:
///   Interleaver order;
///   do { order.run({one, other}); check(); } while (order.next());
/// A task calls pause() before each step; there another may go on. Between two pauses nobody else runs.
class Interleaver {
 public:
  /// Every order, the first of them first.
  Interleaver() = default;
  /// An order drawn by `seed`.
  explicit Interleaver(uint64_t seed) : random_(std::make_unique<std::mt19937_64>(seed)) {}

  /// Runs the tasks to their ends; throws what one of them threw.
  void run(const std::vector<std::function<void()>>& tasks) {
    step_ = 0;
    failure_ = nullptr;
    is_done_.assign(tasks.size(), false);
    current_ = kNobody;
    std::vector<std::jthread> threads;
    threads.reserve(tasks.size());
    for (size_t task = 0; task < tasks.size(); ++task) {
      threads.emplace_back([this, task, &work = tasks[task]] { run_task(task, work); });
    }
    {
      const std::lock_guard hold(mutex_);
      choose();
    }
    threads.clear();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

  /// Where another task may go on. Does nothing in a thread that is no task.
  void pause() {
    if (task_of_thread() == kNobody) {
      return;
    }
    std::unique_lock lock(mutex_);
    choose();
    wait_for_turn(lock);
  }

  /// Makes the next order the one to run; false after the last.
  bool next() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().num_tasks) {
      choices_.pop_back();
    }
    if (choices_.empty()) {
      return false;
    }
    choices_.back().taken += 1;
    return true;
  }

 private:
  static constexpr size_t kNobody = static_cast<size_t>(-1);
  struct Choice {
    size_t taken = 0;
    size_t num_tasks = 0;
  };

  static size_t& task_of_thread() {
    static thread_local size_t task = kNobody;
    return task;
  }

  void run_task(size_t task, const std::function<void()>& work) {
    task_of_thread() = task;
    {
      std::unique_lock lock(mutex_);
      wait_for_turn(lock);
    }
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();  // Only the thread whose turn it is writes it.
    }
    const std::lock_guard hold(mutex_);
    is_done_[task] = true;
    choose();
  }

  void wait_for_turn(std::unique_lock<std::mutex>& lock) {
    turn_.wait(lock, [this] { return current_ == task_of_thread(); });
  }

  /// REQUIRES: mutex_ is held.
  void choose() {
    std::vector<size_t> runnable;
    for (size_t task = 0; task < is_done_.size(); ++task) {
      if (!is_done_[task]) {
        runnable.push_back(task);
      }
    }
    if (runnable.empty()) {
      return;
    }
    size_t taken = 0;
    if (random_) {
      taken = (*random_)() % runnable.size();
    } else {
      if (step_ == choices_.size()) {
        choices_.push_back({.taken = 0, .num_tasks = runnable.size()});
      }
      taken = choices_[step_++].taken;
    }
    current_ = runnable[taken];
    turn_.notify_all();
  }

  std::mutex mutex_;  // Guards all below.
  std::condition_variable turn_;
  size_t current_ = kNobody;
  std::vector<bool> is_done_;
  std::vector<Choice> choices_;
  size_t step_ = 0;
  std::unique_ptr<std::mt19937_64> random_;
  std::exception_ptr failure_;
};

}  // namespace darkroom
