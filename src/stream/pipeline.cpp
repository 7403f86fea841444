#include "darkroom/stream/pipeline.h"

#include <exception>
#include <thread>

namespace darkroom {

StageSnapshot StageStats::snapshot() const {
  return {.name = name_,
          .num_workers = num_workers_,
          .num_rows = num_rows_.load(std::memory_order_relaxed),
          .num_bytes = num_bytes_.load(std::memory_order_relaxed),
          .busy_seconds = static_cast<double>(busy_nanoseconds_.load(std::memory_order_relaxed)) * 1e-9,
          .queue_depth = queue_depth_ ? queue_depth_() : 0,
          .queue_capacity = queue_capacity_};
}

StageStats& Pipeline::add_stats(std::string name, int num_workers) {
  DARKROOM_CHECK(num_workers > 0, "a stage needs a worker:", name);
  return stats_.emplace_back(std::move(name), num_workers);
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
    status = Status::internal("a stage failed unexpectedly:", failure.what());
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
    for (Group& group : groups_) {
      for (int worker = 0; worker < group.num_workers; ++worker) {
        threads.emplace_back([this, &group, worker] { run_worker(group, worker); });
      }
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
