#include "darkroom/stream/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <new>
#include <numeric>
#include <string>
#include <thread>

#include "darkroom/core/used_up_memory.h"
#include "darkroom/stream/memory_budget.h"
#include "darkroom/stream/reorder_buffer.h"
#include "support/no_new_threads.h"
#include "support/said_by_child.h"

namespace darkroom {
namespace {

struct Piece {
  int64_t position = 0;
  int64_t value = 0;
  MemoryLease lease = {};
};

class Square : public Stage<Piece, Piece> {
 public:
  Status process(Piece piece, Emitter<Piece>& out) override {
    piece.value *= piece.value;
    out.count(1, 8);
    return out.emit(std::move(piece));
  }
};

std::function<Result<std::unique_ptr<Stage<Piece, Piece>>>(int)> make_square() {
  return
      [](int) -> Result<std::unique_ptr<Stage<Piece, Piece>>> { return std::unique_ptr<Stage<Piece, Piece>>(std::make_unique<Square>()); };
}

std::function<Status(int, Emitter<Piece>&)> count_to(int64_t num_pieces) {
  return [num_pieces](int, Emitter<Piece>& out) -> Status {
    for (int64_t i = 0; i < num_pieces; ++i) {
      DARKROOM_RETURN_IF_ERROR(out.emit({.position = i, .value = i}));
    }
    return {};
  };
}

class PipelineOrder : public ::testing::TestWithParam<std::tuple<int64_t, int>> {};

TEST_P(PipelineOrder, a_reorder_buffer_restores_the_order_of_any_pool) {
  const auto [num_pieces, num_workers] = GetParam();
  BoundedQueue<Piece> first(2), second(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>("count", 1, count_to(num_pieces), first);
  pipeline.add_pool<Piece, Piece>("square", num_workers, make_square(), first, second);
  ReorderBuffer<Piece> reorder;
  std::vector<int64_t> seen;
  pipeline.add_sink<Piece>(
      "collect",
      [&](Piece piece, StageStats& stats) {
        stats.count(1, 0);
        const int64_t position = piece.position;
        reorder.insert(position, std::move(piece));
        while (auto next = reorder.take_next()) {
          seen.push_back(next->value);
        }
        return Status();
      },
      second);
  ASSERT_TRUE(pipeline.run().is_ok());
  ASSERT_EQ(static_cast<int64_t>(seen.size()), num_pieces);
  for (int64_t i = 0; i < num_pieces; ++i) {
    EXPECT_EQ(seen[i], i * i);
  }
  const auto snapshots = pipeline.snapshots();
  ASSERT_EQ(snapshots.size(), 3u);
  EXPECT_EQ(snapshots[1].num_rows, num_pieces);
  EXPECT_EQ(snapshots[1].num_bytes, 8 * num_pieces);
  EXPECT_EQ(snapshots[2].num_rows, num_pieces);
}

INSTANTIATE_TEST_SUITE_P(HostileSizes, PipelineOrder,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3, 97, 1000), ::testing::Values(1, 2, 7)));

TEST(Pipeline, the_first_failure_wins_and_ends_an_endless_source) {
  BoundedQueue<Piece> first(2), second(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>("endless", 2, count_to(INT64_MAX), first);
  pipeline.add_pool<Piece, Piece>("square", 3, make_square(), first, second);
  pipeline.add_sink<Piece>(
      "fail",
      [](Piece piece, StageStats&) { return piece.position == 20 ? Status::resource_exhausted("the disk is full:", "/out") : Status(); },
      second);
  const Status status = pipeline.run();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "the disk is full: /out");
}

TEST(Pipeline, a_stage_that_cannot_be_made_ends_the_run) {
  BoundedQueue<Piece> first(1), second(1);
  Pipeline pipeline({});
  pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), first);
  pipeline.add_pool<Piece, Piece>(
      "broken", 2, [](int) -> Result<std::unique_ptr<Stage<Piece, Piece>>> { return Status::not_found("no model:", "x"); }, first, second);
  pipeline.add_sink<Piece>(
      "collect", [](Piece, StageStats&) { return Status(); }, second);
  EXPECT_EQ(pipeline.run().code(), StatusCode::kNotFound);
}

TEST(Pipeline, an_exception_in_a_stage_becomes_an_internal_error) {
  BoundedQueue<Piece> first(1);
  Pipeline pipeline({});
  pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), first);
  pipeline.add_sink<Piece>(
      "throw", [](Piece, StageStats&) -> Status { throw std::runtime_error("surprise"); }, first);
  EXPECT_EQ(pipeline.run().code(), StatusCode::kInternal);
}

TEST(Pipeline, memory_that_is_used_up_in_a_stage_says_what_to_do) {
  const auto failure_of = [](const std::function<void()>& work) {
    BoundedQueue<Piece> first(1);
    Pipeline pipeline({});
    pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), first);
    pipeline.add_sink<Piece>(
        "throw",
        [&](Piece, StageStats&) {
          work();
          return Status();
        },
        first);
    return pipeline.run();
  };
  const Status memory = failure_of([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), StatusCode::kResourceExhausted) << memory.to_string();
  EXPECT_EQ(memory.message(), "out of memory; what was committed is safe: lower --memory, batch size or workers and run again");
  const Status gpu = failure_of([] { throw GpuMemoryUsedUp("tried to allocate 2 GiB"); });
  EXPECT_EQ(gpu.code(), StatusCode::kResourceExhausted) << gpu.to_string();
  EXPECT_EQ(
      gpu.message(),
      "the GPU's memory is used up; what was committed is safe: lower the batch size or --micro-batch and run again: tried to allocate 2 "
      "GiB");
}

TEST(Pipeline, a_stop_from_outside_ends_it_as_cancelled) {
  std::stop_source stop;
  BoundedQueue<Piece> first(4);
  Pipeline pipeline(stop.get_token());
  pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), first);
  pipeline.add_sink<Piece>(
      "collect",
      [&](Piece piece, StageStats&) {
        if (piece.position == 10) {
          stop.request_stop();
        }
        return Status();
      },
      first);
  EXPECT_EQ(pipeline.run().code(), StatusCode::kCancelled);
}

TEST(Pipeline, a_stop_that_came_before_the_start_still_ends_it) {
  std::stop_source stop;
  stop.request_stop();
  BoundedQueue<Piece> first(4);
  Pipeline pipeline(stop.get_token());
  pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), first);
  pipeline.add_sink<Piece>(
      "collect", [](Piece, StageStats&) { return Status(); }, first);
  EXPECT_EQ(pipeline.run().code(), StatusCode::kCancelled);
}

TEST(Pipeline, the_door_bounds_what_a_reorder_buffer_can_hold_behind_a_slow_head) {
  constexpr size_t kPieceBytes = 10, kLimit = 100;
  MemoryBudget budget(kLimit);
  BoundedQueue<Piece> first(1), second(1);
  Pipeline pipeline({});
  pipeline.add_source<Piece>(
      "admit", 1,
      [&](int, Emitter<Piece>& out) -> Status {
        for (int64_t i = 0; i < 200; ++i) {
          auto lease = budget.acquire(kPieceBytes, out.stop());
          if (!lease) {
            return Status::cancelled("stopped");
          }
          DARKROOM_RETURN_IF_ERROR(out.emit({.position = i, .value = i, .lease = *std::move(lease)}));
        }
        return {};
      },
      first);
  // The head of the line comes last of each ten pieces, the most that fits.
  class Swap : public Stage<Piece, Piece> {
   public:
    Status process(Piece piece, Emitter<Piece>& out) override {
      held_.push_back(std::move(piece));
      if (held_.size() == kLimit / kPieceBytes) {
        for (auto it = held_.rbegin(); it != held_.rend(); ++it) {
          DARKROOM_RETURN_IF_ERROR(out.emit(std::move(*it)));
        }
        held_.clear();
      }
      return {};
    }

   private:
    std::vector<Piece> held_;
  };
  pipeline.add_pool<Piece, Piece>(
      "swap", 1,
      [](int) -> Result<std::unique_ptr<Stage<Piece, Piece>>> { return std::unique_ptr<Stage<Piece, Piece>>(std::make_unique<Swap>()); },
      first, second);
  ReorderBuffer<Piece> reorder;
  int64_t num_seen = 0;
  pipeline.add_sink<Piece>(
      "collect",
      [&](Piece piece, StageStats&) {
        const int64_t position = piece.position;
        reorder.insert(position, std::move(piece));
        while (reorder.take_next()) {
          ++num_seen;
        }
        return Status();
      },
      second);
  ASSERT_TRUE(pipeline.run().is_ok());
  EXPECT_EQ(num_seen, 200);
  EXPECT_LE(budget.peak_bytes(), kLimit);
}

TEST(StageStats, a_snapshot_holds_what_was_counted) {
  StageStats stats("encode", 3);
  const StageSnapshot untouched = stats.snapshot();
  EXPECT_EQ(untouched.num_rows, 0);
  EXPECT_EQ(untouched.num_bytes, 0);
  EXPECT_EQ(untouched.busy_seconds, 0.0);
  EXPECT_EQ(untouched.blocked_seconds, 0.0);
  EXPECT_EQ(untouched.starved_seconds, 0.0);
  EXPECT_EQ(untouched.cpu_seconds, 0.0);
  EXPECT_EQ(untouched.queue_depth, 0u);
  EXPECT_EQ(untouched.queue_capacity, 0u);
  stats.watch_queue([] { return size_t{4}; }, 9);
  stats.count(2, 30);
  stats.count(1, 5);
  stats.add(WorkerState::kBusy, std::chrono::seconds(2));
  stats.add(WorkerState::kBusy, std::chrono::milliseconds(500));
  stats.add(WorkerState::kBlocked, std::chrono::milliseconds(250));
  stats.add(WorkerState::kStarved, std::chrono::milliseconds(125));
  stats.add_cpu(std::chrono::milliseconds(750));
  stats.add_cpu(std::chrono::milliseconds(500));
  const StageSnapshot snapshot = stats.snapshot();
  EXPECT_EQ(snapshot.name, "encode");
  EXPECT_EQ(snapshot.num_workers, 3);
  EXPECT_EQ(snapshot.num_rows, 3);
  EXPECT_EQ(snapshot.num_bytes, 35);
  EXPECT_EQ(snapshot.busy_seconds, 2.5);
  EXPECT_EQ(snapshot.blocked_seconds, 0.25);
  EXPECT_EQ(snapshot.starved_seconds, 0.125);
  EXPECT_EQ(snapshot.cpu_seconds, 1.25);
  EXPECT_EQ(snapshot.queue_depth, 4u);
  EXPECT_EQ(snapshot.queue_capacity, 9u);
}

TEST(StageStats, a_snapshot_that_nothing_filled_is_zero) {
  const StageSnapshot empty;
  EXPECT_EQ(empty.num_workers, 0);
  EXPECT_EQ(empty.num_rows, 0);
  EXPECT_EQ(empty.num_bytes, 0);
  EXPECT_EQ(empty.queue_depth, 0u);
}

// Two workers: one computes until its own clock of processor time has gone on by 30 ms, the other sleeps.
TEST(Pipeline, processor_time_is_that_of_the_stages_own_workers) {
  BoundedQueue<Piece> queue(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>(
      "compute", 1,
      [](int, Emitter<Piece>& out) -> Status {
        const auto now = [] {
          timespec time{};
          clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
          return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
        };
        for (const double start = now(); now() < start + 0.03;) {
        }
        return out.emit({.position = 0, .value = 0});
      },
      queue);
  pipeline.add_sink<Piece>(
      "idle", [](const Piece&, StageStats&) { return Status(); }, queue);
  ASSERT_TRUE(pipeline.run().is_ok());
  const auto snapshots = pipeline.snapshots();
  EXPECT_GE(snapshots[0].cpu_seconds, 0.03);
  EXPECT_LT(snapshots[1].cpu_seconds, 0.03);
}

// Works for 20 ms a piece; the source waits outside for as long.
TEST(Pipeline, time_at_work_is_counted_without_time_spent_waiting) {
  using std::chrono::milliseconds;
  constexpr int kPieces = 5;
  BoundedQueue<Piece> queue(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>(
      "wait", 1,
      [](int, Emitter<Piece>& out) -> Status {
        for (int64_t i = 0; i < kPieces; ++i) {
          out.waiting([] {
            std::this_thread::sleep_for(milliseconds(20));
            return true;
          });
          std::this_thread::sleep_for(milliseconds(2));
          DARKROOM_RETURN_IF_ERROR(out.emit({.position = i, .value = i}));
        }
        return {};
      },
      queue);
  pipeline.add_sink<Piece>(
      "work",
      [](const Piece&, StageStats&) -> Status {
        std::this_thread::sleep_for(milliseconds(20));
        return {};
      },
      queue);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(pipeline.run().is_ok());
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto snapshots = pipeline.snapshots();
  EXPECT_GE(snapshots[0].busy_seconds, kPieces * 0.002);
  EXPECT_LE(snapshots[0].busy_seconds, elapsed - kPieces * 0.020);  // A sleep may be longer, never shorter.
  EXPECT_GE(snapshots[0].blocked_seconds, kPieces * 0.020);
  EXPECT_EQ(snapshots[0].starved_seconds, 0.0);
  EXPECT_GE(snapshots[1].busy_seconds, kPieces * 0.020);
  EXPECT_LE(snapshots[1].busy_seconds, elapsed);
  EXPECT_EQ(snapshots[1].blocked_seconds, 0.0);
  EXPECT_LE(snapshots[1].starved_seconds, elapsed - kPieces * 0.020);
}

TEST(Pipeline, its_stages_count_in_the_registry_while_they_work) {
  MetricsRegistry metrics;
  {
    BoundedQueue<Piece> first(2), second(2);
    Pipeline pipeline({}, &metrics);
    pipeline.add_source<Piece>("count", 1, count_to(3), first);
    pipeline.add_pool<Piece, Piece>("square", 2, make_square(), first, second);
    std::chrono::nanoseconds starved_meanwhile{0};
    SecondsCounter& starved = metrics.seconds_counter("darkroom_stage_seconds_total", "Time of a stage's workers, by what they did.",
                                                      {{"stage", "collect"}, {"state", "starved"}});
    pipeline.add_sink<Piece>(
        "collect",
        [&](const Piece&, StageStats&) {
          starved_meanwhile = starved.value();
          return Status();
        },
        second);
    ASSERT_TRUE(first.push({}, {}));
    EXPECT_NE(metrics.to_prometheus().find("darkroom_queue_items{stage=\"square\"} 1\n"), std::string::npos);
    ASSERT_TRUE(pipeline.run().is_ok());
    EXPECT_GT(starved_meanwhile.count(), 0) << "counted only at the end";
    const std::string text = metrics.to_prometheus();
    EXPECT_NE(text.find("darkroom_rows_total{stage=\"square\"} 4\n"), std::string::npos) << text;
    EXPECT_NE(text.find("darkroom_bytes_total{stage=\"square\"} 32\n"), std::string::npos) << text;
    EXPECT_NE(text.find("darkroom_queue_items{stage=\"square\"} 0\n"), std::string::npos) << text;
    EXPECT_NE(text.find("darkroom_stage_seconds_total{stage=\"count\",state=\"blocked\"}"), std::string::npos) << text;
  }
  EXPECT_NE(metrics.to_prometheus().find("darkroom_queue_items"), std::string::npos) << "a scrape after the pipeline's end";
}

TEST(Pipeline, the_end_of_a_sink_is_told_once_all_has_come) {
  BoundedQueue<Piece> queue(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>("count", 1, count_to(7), queue);
  int num_seen = 0, num_ends = 0;
  pipeline.add_sink<Piece>(
      "collect",
      [&](const Piece&, StageStats&) {
        ++num_seen;
        return Status();
      },
      queue,
      [&] {
        EXPECT_EQ(num_seen, 7);
        ++num_ends;
        return Status::corrupt_data("something is missing:", "x");
      });
  EXPECT_EQ(pipeline.run().code(), StatusCode::kCorruptData) << "its failure is the run's";
  EXPECT_EQ(num_ends, 1);
}

TEST(Pipeline, the_end_of_a_sink_is_not_told_after_a_failure) {
  BoundedQueue<Piece> queue(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>(
      "fail", 1, [](int, Emitter<Piece>&) { return Status::unavailable("the store is gone:", "x"); }, queue);
  bool was_told = false;
  pipeline.add_sink<Piece>(
      "collect", [](const Piece&, StageStats&) { return Status(); }, queue,
      [&] {
        was_told = true;
        return Status();
      });
  EXPECT_EQ(pipeline.run().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(was_told);
}

TEST(Pipeline, no_thread_at_all_ends_it_as_exhausted) {
  BoundedQueue<Piece> queue(2);
  Pipeline pipeline({});
  pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), queue);
  pipeline.add_sink<Piece>(
      "collect", [](const Piece&, StageStats&) { return Status(); }, queue);
  const NoNewThreads none;
  EXPECT_EQ(pipeline.run().code(), StatusCode::kResourceExhausted);
}

// The first threads run, wait for the others, and have to be stopped.
TEST(Pipeline, threads_that_run_are_stopped_when_another_cannot_be_started) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory does not fit under the limit that this test sets";
#endif
  const auto run_short_of_threads = [] {
    BoundedQueue<Piece> first(2), second(2);
    Pipeline pipeline({});
    pipeline.add_source<Piece>("endless", 1, count_to(INT64_MAX), first);
    pipeline.add_pool<Piece, Piece>("square", 64, make_square(), first, second);
    pipeline.add_sink<Piece>(
        "collect", [](const Piece&, StageStats&) { return Status(); }, second);
    pthread_attr_t large{};
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, size_t{1} << 30);
    pthread_setattr_default_np(&large);
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t{6} << 30;  // Room for a few stacks. The hard limit may be somebody else's.
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    const Status status = pipeline.run();
    std::fprintf(stderr, "%s", status.to_string().c_str());
  };
  EXPECT_THAT(said_by_child(ChildStderr::kPipe, run_short_of_threads),
              ::testing::MatchesRegex("resource_exhausted: no more threads can be started; use fewer workers or raise the limit "
                                      "\\(running, reason\\): [1-5] .*"));
}

TEST(ReorderBuffer, refuses_a_position_that_came_before) {
  ReorderBuffer<int> reorder;
  reorder.insert(1, 10);
  EXPECT_EQ(reorder.take_next(), std::nullopt);
  EXPECT_THROW(reorder.insert(1, 11), CheckFailure);
  reorder.insert(0, 9);
  EXPECT_EQ(reorder.take_next(), 9);
  EXPECT_EQ(reorder.take_next(), 10);
  EXPECT_THROW(reorder.insert(0, 9), CheckFailure);
  EXPECT_EQ(reorder.num_waiting(), 0u);
}

}  // namespace
}  // namespace darkroom
