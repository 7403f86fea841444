#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/stream/bounded_queue.h"
#include "darkroom/stream/stage_stats.h"

namespace darkroom {

/// A worker's way out: pushes into the stage's output queue and counts. Thread safety: one worker.
template <typename Out>
class Emitter {
 public:
  Emitter(BoundedQueue<Out>& queue, StageStats& stats, std::stop_token stop, WorkerTimer& timer)
      : queue_(queue), stats_(stats), stop_(std::move(stop)), timer_(timer) {}

  /// Waits for room. Fails with kCancelled once the pipeline stops; return that from the stage.
  Status emit(Out value) {
    const bool pushed = waiting([&] { return queue_.push(std::move(value), stop_); });
    return pushed ? Status() : Status::cancelled("stopped while handing over work");
  }
  /// Calls `wait` and counts its time as blocked, not as work: for a wait for room outside of the pipeline.
  template <typename Wait>
  auto waiting(Wait wait) {
    return timer_.waiting(WorkerState::kBlocked, std::move(wait));
  }
  /// The same, counted as starved: for a source that waits for its input.
  template <typename Wait>
  auto starving(Wait wait) {
    return timer_.waiting(WorkerState::kStarved, std::move(wait));
  }
  void count(int64_t num_rows, int64_t num_bytes) { stats_.count(num_rows, num_bytes); }
  const std::stop_token& stop() const { return stop_; }

 private:
  BoundedQueue<Out>& queue_;
  StageStats& stats_;
  std::stop_token stop_;
  WorkerTimer& timer_;
};

/// One worker's part of a stage. It is made in its worker's thread, used only there and shares nothing but what it is given.
template <typename In, typename Out>
class Stage {
 public:
  virtual ~Stage() = default;
  /// Turns one input into any number of outputs. A failure ends the whole pipeline: a row's failure is a value, not a Status.
  virtual Status process(In input, Emitter<Out>& out) = 0;
};

/// Sources, pools of stages and sinks, one thread a worker, joined by bounded queues (which must outlive the pipeline).
/// The slowest stage sets the pace. The first failure wins and stops everything.
/// Thread safety: build and run it from one thread; snapshots() from any.
class Pipeline {
 public:
  /// `stop` ends the run early with kCancelled. The stages count also in `metrics` (docs/metrics.md) where it is given; it outlives this.
  explicit Pipeline(std::stop_token stop, MetricsRegistry* metrics = nullptr) : outer_stop_(std::move(stop)), metrics_(metrics) {}
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Adds `num_workers` threads that produce until they return.
  template <typename Out>
  void add_source(std::string name, int num_workers, std::function<Status(int worker, Emitter<Out>& out)> produce, BoundedQueue<Out>& out) {
    StageStats& stats = add_stats(std::move(name), num_workers);
    out.add_producer();
    add_group(
        num_workers,
        [this, &stats, &out, produce = std::move(produce)](int worker) {
          WorkerTimer timer(stats);
          Emitter<Out> emitter(out, stats, stop_.get_token(), timer);
          return produce(worker, emitter);
        },
        [&out] { out.producer_done(); });
  }

  /// Adds a pool: `make` builds each worker's own stage object.
  template <typename In, typename Out>
  void add_pool(std::string name, int num_workers, std::function<Result<std::unique_ptr<Stage<In, Out>>>(int worker)> make,
                BoundedQueue<In>& in, BoundedQueue<Out>& out) {
    StageStats& stats = add_stats(std::move(name), num_workers);
    watch_queue(
        stats, [&in] { return in.size(); }, in.max_items());
    out.add_producer();
    add_group(
        num_workers,
        [this, &stats, &in, &out, make = std::move(make)](int worker) -> Status {
          WorkerTimer timer(stats);
          DARKROOM_ASSIGN_OR_RETURN(auto stage, make(worker));
          Emitter<Out> emitter(out, stats, stop_.get_token(), timer);
          return drain<In>(in, timer, [&](In input) { return stage->process(std::move(input), emitter); });
        },
        [&out] { out.producer_done(); });
  }

  /// Adds one thread that consumes what arrives. `consume` gets the stage's counters to count rows and bytes. `at_end` is called once all
  /// that will ever come was consumed; never after a stop.
  template <typename In>
  void add_sink(std::string name, std::function<Status(In input, StageStats& stats)> consume, BoundedQueue<In>& in,
                std::function<Status()> at_end = {}) {
    StageStats& stats = add_stats(std::move(name), 1);
    watch_queue(
        stats, [&in] { return in.size(); }, in.max_items());
    add_group(
        1,
        [this, &stats, &in, consume = std::move(consume), at_end = std::move(at_end)](int) -> Status {
          WorkerTimer timer(stats);
          DARKROOM_RETURN_IF_ERROR(drain<In>(in, timer, [&](In input) { return consume(std::move(input), stats); }));
          return at_end && !stop_.stop_requested() ? at_end() : Status();
        },
        [] {});
  }

  /// Starts every worker, waits until all have ended and returns the first failure. Where a thread cannot be started, those that run are
  /// stopped and the failure is kResourceExhausted. REQUIRES: called once.
  Status run();

  /// The token that the pipeline's own threads obey: requested from outside or by the first failure.
  std::stop_token stop_token() const { return stop_.get_token(); }
  /// Counters of every stage in the order in which they were added.
  std::vector<StageSnapshot> snapshots() const;

 private:
  struct Group {
    int num_workers;
    std::function<Status(int worker)> work;
    std::function<void()> all_done;
    int num_running;
  };

  StageStats& add_stats(std::string name, int num_workers);
  void watch_queue(StageStats& stats, std::function<size_t()> depth, size_t capacity);
  void add_group(int num_workers, std::function<Status(int)> work, std::function<void()> all_done);
  void run_worker(Group& group, int worker);
  void fail(Status status);

  template <typename In, typename Work>
  Status drain(BoundedQueue<In>& in, WorkerTimer& timer, Work work) {
    const std::stop_token stop = stop_.get_token();
    while (std::optional<In> input = timer.waiting(WorkerState::kStarved, [&] { return in.pop(stop); })) {
      DARKROOM_RETURN_IF_ERROR(work(*std::move(input)));
    }
    return {};
  }

  std::stop_token outer_stop_;
  MetricsRegistry* const metrics_;
  std::stop_source stop_;
  std::deque<StageStats> stats_;
  std::deque<Group> groups_;
  std::mutex mutex_;
  Status first_failure_;  // Guarded by mutex_, like Group::num_running.
  std::vector<MetricsRegistry::Collection> queue_depths_;
};

}  // namespace darkroom
