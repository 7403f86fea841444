#include "train/train_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

StepTimes step_of(double step_ms) {
  StepTimes times;
  times.report.loss = 0.25;
  times.report.grad_norm = 1.5;
  times.report.learning_rate = 0.001;
  times.phases = {{.forward_ms = 30, .backward_ms = 50, .update_ms = 10}};
  times.report.wait_ms = 4;
  times.data_ms = 5;
  times.step_ms = step_ms;
  return times;
}

TEST(TrainMetricsTest, tell_a_step_of_a_rank) {
  MetricsRegistry registry;
  TrainMetrics metrics(
      registry, {.rank = 1, .num_ranks = 2, .last_step = 10, .batch_size = 16, .rank_samples = 8, .step_flop = 4e9, .rank_tflops = 0.1});
  metrics.show_step(3, step_of(100));
  metrics.show_step(4, step_of(100));
  const std::string text = registry.to_prometheus();
  for (const char* line :
       {"darkroom_train_rank 1\n", "darkroom_train_ranks 2\n", "darkroom_train_step 4\n", "darkroom_train_last_step 10\n",
        "darkroom_train_images_total 16\n", "darkroom_train_images_per_second 160\n", "darkroom_train_loss 0.25\n",
        "darkroom_train_grad_norm 1.5\n", "darkroom_train_learning_rate 0.001\n", "darkroom_train_skipped_steps_total 0\n",
        "darkroom_train_phase_seconds_total{phase=\"data_wait\"} 0.010000000\n",
        "darkroom_train_phase_seconds_total{phase=\"forward\"} 0.060000000\n",
        "darkroom_train_phase_seconds_total{phase=\"device_wait\"} 0.008000000\n",
        "darkroom_train_phase_seconds_total{phase=\"step\"} 0.200000000\n",
        // Half of 4e9 operations in 0.1 s, of a peak of 1e11.
        "darkroom_train_flop_per_second 20000000000\n", "darkroom_train_mfu 0.2\n", "darkroom_train_peak_flop_per_second 100000000000\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_GT(
      registry.gauge("darkroom_train_peak_memory_bytes", "Most memory that the rank's tensors took on its GPU, or the process on a CPU.")
          .value(),
      1e6);
}

TEST(ProgressLineTest, tells_operations_per_second_and_their_share_of_the_peak_where_they_are_known) {
  const auto line_of = [](const StepWork& work, double wait_ms) {
    ProgressLine line(10, 16, work);
    StepTimes times = step_of(100);
    times.report.wait_ms = wait_ms;
    line.show(1, times);
    return line.text(1, times);
  };
  EXPECT_THAT(line_of({}, 0), HasSubstr("160 img/s  ms: data 5 fwd 30 bwd 50 opt 10  ETA"));
  EXPECT_THAT(line_of({.flop = 4e12}, 0), HasSubstr("160 img/s  40 TFLOP/s  ms:"));
  EXPECT_THAT(line_of({.flop = 4e12, .peak_tflops = 100}, 4),
              HasSubstr("160 img/s  40 TFLOP/s (40 %)  ms: data 5 fwd 30 bwd 50 opt 10 wait 4  ETA"));
  EXPECT_FALSE(StepWork{.peak_tflops = 100}.mfu(100).has_value());
  EXPECT_FALSE(StepWork{.flop = 4e12}.tflops(0).has_value());
}

TEST(TrainMetricsTest, tell_no_share_of_a_peak_that_nobody_knows) {
  MetricsRegistry registry;
  TrainMetrics without_peak(registry, {.batch_size = 16, .rank_samples = 16, .step_flop = 4e9});
  without_peak.show_step(1, step_of(100));
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_train_flop_per_second "));
  EXPECT_THAT(registry.to_prometheus(), Not(HasSubstr("darkroom_train_mfu")));
}

// Of a step that is looked at the GPU tells its own times and those of the steps that had run ahead.
TEST(TrainMetricsTest, add_up_what_a_gpu_tells_of_several_steps_at_once) {
  MetricsRegistry registry;
  TrainMetrics metrics(registry, {.batch_size = 16, .rank_samples = 16});
  StepTimes ahead = step_of(2);
  ahead.phases.clear();
  metrics.show_step(1, ahead);
  StepTimes looked = step_of(150);
  looked.phases = {{.idle_ms = 1, .forward_ms = 20, .backward_ms = 40, .update_ms = 5},
                   {.idle_ms = 2, .forward_ms = 24, .backward_ms = 46, .update_ms = 7}};
  metrics.show_step(2, looked);
  for (const char* line : {"{phase=\"device_idle\"} 0.003", "{phase=\"forward\"} 0.044", "{phase=\"backward\"} 0.086",
                           "{phase=\"update\"} 0.012", "{phase=\"step\"} 0.152"}) {
    EXPECT_THAT(registry.to_prometheus(), HasSubstr(std::string("darkroom_train_phase_seconds_total") + line));
  }
}

TEST(TrainMetricsTest, keep_the_last_good_loss_past_a_step_that_was_left_out) {
  MetricsRegistry registry;
  TrainMetrics metrics(registry, {.batch_size = 16, .rank_samples = 16});
  metrics.show_step(1, step_of(100));
  StepTimes skipped = step_of(100);
  skipped.is_skipped = true;
  skipped.report.loss = NAN;
  metrics.show_step(2, skipped);
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_train_loss 0.25\n"));
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_train_skipped_steps_total 1\n"));
}

TEST(TrainMetricsTest, tell_what_the_wall_time_went_into) {
  MetricsRegistry registry;
  FakeClock clock;
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_folders("run").is_ok());
  const auto ledger = GoodputLedger::open(files, "run/goodput.jsonl", clock, clock.now(), 0);
  ASSERT_TRUE(ledger.is_ok()) << ledger.status().message();
  clock.advance(std::chrono::seconds(3));
  (*ledger)->spend(Spending::kTraining);
  clock.advance(std::chrono::seconds(1));
  (*ledger)->spend(Spending::kSaving);
  TrainMetrics metrics(registry, {.batch_size = 16, .rank_samples = 16});
  metrics.show_spent(**ledger);
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_train_goodput 0.75\n"));
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_train_spent_seconds{spending=\"saving\"} 1\n"));
}

}  // namespace
}  // namespace darkroom
