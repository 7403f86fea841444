#include "darkroom/stream/pipeline.h"

#include <time.h>

#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "darkroom/core/used_up_memory.h"

namespace darkroom {

StageStats::StageStats(std::string name, int num_workers, MetricsRegistry* metrics) : name_(std::move(name)), num_workers_(num_workers) {
  if (metrics == nullptr) {
    return;
  }
  shared_.rows = &metrics->counter("darkroom_rows_total", "Rows that a stage has finished.", {{"stage", name_}});
  shared_.bytes = &metrics->counter("darkroom_bytes_total", "Bytes that a stage has finished.", {{"stage", name_}});
  for (const auto& [state, label] :
       {std::pair(WorkerState::kBusy, "busy"), std::pair(WorkerState::kBlocked, "blocked"), std::pair(WorkerState::kStarved, "starved")}) {
    shared_.seconds[static_cast<size_t>(state)] = &metrics->seconds_counter(
        "darkroom_stage_seconds_total", "Time of a stage's workers, by what they did.", {{"stage", name_}, {"state", label}});
  }
}

void StageStats::count(int64_t num_rows, int64_t num_bytes) {
  num_rows_.add(num_rows);
  num_bytes_.add(num_bytes);
  if (shared_.rows != nullptr) {
    shared_.rows->add(num_rows);
    shared_.bytes->add(num_bytes);
  }
}

void StageStats::add(WorkerState state, std::chrono::nanoseconds duration) {
  const auto index = static_cast<size_t>(state);
  seconds_[index].add(duration);
  if (shared_.seconds[index] != nullptr) {
    shared_.seconds[index]->add(duration);
  }
}

std::chrono::nanoseconds WorkerTimer::cpu_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

StageSnapshot StageStats::snapshot() const {
  const auto seconds = [this](WorkerState state) {
    return std::chrono::duration<double>(seconds_[static_cast<size_t>(state)].value()).count();
  };
  return {.name = name_,
          .num_workers = num_workers_,
          .num_rows = num_rows_.value(),
          .num_bytes = num_bytes_.value(),
          .busy_seconds = seconds(WorkerState::kBusy),
          .blocked_seconds = seconds(WorkerState::kBlocked),
          .starved_seconds = seconds(WorkerState::kStarved),
          .cpu_seconds = std::chrono::duration<double>(cpu_seconds_.value()).count(),
          .queue_depth = queue_depth_ ? queue_depth_() : 0,
          .queue_capacity = queue_capacity_};
}

StageStats& Pipeline::add_stats(std::string name, int num_workers) {
  DARKROOM_CHECK(num_workers > 0, "a stage needs a worker:", name);
  return stats_.emplace_back(std::move(name), num_workers, metrics_);
}

void Pipeline::watch_queue(StageStats& stats, std::function<size_t()> depth, size_t capacity) {
  if (metrics_ != nullptr) {
    Gauge& gauge = metrics_->gauge("darkroom_queue_items", "Items that wait for a stage.", {{"stage", stats.name()}});
    queue_depths_.push_back(metrics_->collect([&gauge, depth](MetricsRegistry&) { gauge.set(static_cast<double>(depth())); }));
  }
  stats.watch_queue(std::move(depth), capacity);
}

void Pipeline::add_group(int num_workers, std::function<Status(int)> work, std::function<void()> all_done) {
  groups_.push_back({num_workers, std::move(work), std::move(all_done), num_workers});
}

void Pipeline::fail(Status status) {
  {
    std::lock_guard lock(mutex_);
    if (first_failure_.is_ok()) {
      first_failure_ = std::move(status);
    }
  }
  stop_.request_stop();
}

void Pipeline::run_worker(Group& group, int worker) {
  Status status;
  try {
    status = group.work(worker);
  } catch (const CheckFailure& failure) {
    status = Status::internal("a stage broke an invariant:", failure.what());
  } catch (const std::exception& failure) {
    status = caught_failure("a stage failed unexpectedly:", failure);
  }
  if (!status.is_ok()) {
    fail(std::move(status));
  }
  bool is_last = false;
  {
    std::lock_guard lock(mutex_);
    is_last = --group.num_running == 0;
  }
  // After a stop the queues stay open: closing them would let a stage behind take a cut stream for a complete one.
  if (is_last && !stop_.stop_requested()) {
    group.all_done();
  }
}

Status Pipeline::run() {
  std::stop_callback forward(outer_stop_, [this] { fail(Status::cancelled("stopped on request")); });
  {
    std::vector<std::jthread> threads;
    try {
      for (Group& group : groups_) {
        for (int worker = 0; worker < group.num_workers; ++worker) {
          threads.emplace_back([this, &group, worker] { run_worker(group, worker); });
        }
      }
    } catch (const std::system_error& failure) {
      // Those that run are joined below, and would wait for the missing ones for ever.
      fail(Status::resource_exhausted(
          "no more threads can be started; use fewer workers or raise the limit (running, reason):", threads.size(), failure.what()));
    } catch (const std::bad_alloc&) {
      fail(Status::resource_exhausted("no memory is left to start threads (running):", threads.size()));
    }
  }
  std::lock_guard lock(mutex_);
  return first_failure_;
}

std::vector<StageSnapshot> Pipeline::snapshots() const {
  std::vector<StageSnapshot> snapshots;
  for (const StageStats& stats : stats_) {
    snapshots.push_back(stats.snapshot());
  }
  return snapshots;
}

}  // namespace darkroom
