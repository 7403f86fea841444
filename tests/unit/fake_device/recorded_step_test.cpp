#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/tensor/device_runtime.h"
#include "on_fake_device.h"
#include "small_trainer.h"

// A training step whose passes and update are recorded and replayed, against the same step on the CPU.

namespace darkroom {
namespace {

constexpr int64_t kSteps = 9;
constexpr int64_t kBatch = 8;

class StepGraphs : public OnFakeDevice {
 protected:
  // The learning rate is another one in every step.
  static TrainStepOptions graph_options(int64_t micro_batch, bool replays = true, int64_t groups = 1) {
    return {.micro_batch = micro_batch,
            .gradient_groups = groups,
            .max_grad_norm = 0.05,
            .schedule = {.peak = 1e-2, .warmup_steps = 2 * kSteps},
            .replays = replays};
  }
  static FlatParametersOptions here(torch::ScalarType type = torch::kFloat32) { return {.compute_type = type}; }
  FlatParametersOptions there(torch::ScalarType type = torch::kFloat32) const { return like_gpu(device_, type); }

  static void expect_same(const Trainer& got, const Trainer& want, const std::string& what) {
    const FlatRange whole{0, want.flat.num_elements()};
    for (const auto& [of_got, of_want] : {std::pair(got.flat.values(), want.flat.values()),
                                          {got.flat.gradients(), want.flat.gradients()},
                                          {got.ema.weights(), want.ema.weights()},
                                          {got.adamw.first_moment(), want.adamw.first_moment()},
                                          {got.adamw.second_moment(), want.adamw.second_moment()}}) {
      EXPECT_TRUE(torch::equal(got.flat.canonical_range(of_got, whole), want.flat.canonical_range(of_want, whole))) << what;
    }
    EXPECT_EQ(got.adamw.num_updates(), want.adamw.num_updates()) << what;
  }
  // The same steps with both; their reports must agree.
  static void run_both(Trainer& got, Trainer& want, int64_t first, int64_t count, int64_t size = kBatch) {
    for (int64_t i = first; i < first + count; ++i) {
      const auto of_want = want.step.run(i, want.device_batch(i, size)), of_got = got.step.run(i, got.device_batch(i, size));
      ASSERT_TRUE(of_want.is_ok() && of_got.is_ok()) << i;
      EXPECT_EQ(of_got->loss, of_want->loss) << i;
      // Padding moves squares to other partial sums, in double: fewer than 512 of them, each rounded once more at the most.
      EXPECT_NEAR(of_got->grad_norm, of_want->grad_norm, 512 * 0x1p-53 * of_want->grad_norm) << i;
    }
  }
  static FakeDeviceCounts now() { return *fake_device_counts(); }
};

TEST_F(StepGraphs, replayed_steps_have_the_cpus_bits_for_every_type_split_and_number_of_groups) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    for (const auto& [micro_batch, groups] : {std::pair<int64_t, int64_t>(8, 1), {2, 1}, {3, 1}, {2, 2}, {3, 2}, {1, 4}}) {
      const std::string what = c10::str(torch::toString(type), ", micro-batches of ", micro_batch, ", groups ", groups);
      Trainer want(here(type), graph_options(micro_batch, true, groups)), got(there(type), graph_options(micro_batch, true, groups)),
          plain(there(type), graph_options(micro_batch, false, groups));
      const FakeDeviceCounts before = now();
      run_both(got, want, 0, kSteps);
      const int64_t sizes_of_a_pass = kBatch / groups % micro_batch == 0 ? 1 : 2;
      EXPECT_EQ(now().recordings - before.recordings, sizes_of_a_pass + 1) << what;
      expect_same(got, want, what);
      const FakeDeviceCounts between = now();
      for (int64_t i = 0; i < kSteps; ++i) {
        ASSERT_TRUE(plain.step.run(i, plain.device_batch(i)).is_ok());
      }
      EXPECT_EQ(now().recordings, between.recordings) << what;
      expect_same(plain, want, what + ", without graphs");
    }
  }
}

TEST_F(StepGraphs, a_replayed_step_that_runs_ahead_copies_what_is_listed_and_waits_for_nothing) {
  for (const int64_t micro_batch : {8, 2, 3}) {
    const int64_t num_passes = (kBatch + micro_batch - 1) / micro_batch;
    FakeDeviceCounts of_plain;
    for (const bool replays : {false, true}) {
      Trainer trainer(there(), graph_options(micro_batch, replays));
      for (int64_t i = 0; i < kSteps; ++i) {
        ASSERT_TRUE(trainer.step.run_ahead(i, trainer.device_batch(i)).is_ok());
      }
      const DeviceBatch batch = trainer.device_batch(kSteps);
      const FakeDeviceCounts before = now();
      ASSERT_TRUE(trainer.step.run_ahead(kSteps, batch).is_ok());
      FakeDeviceCounts cost = now();
      EXPECT_EQ(cost.synchronisations, before.synchronisations) << micro_batch;
      EXPECT_EQ(cost.device_to_host, before.device_to_host) << micro_batch;
      EXPECT_EQ(cost.host_to_device, before.host_to_device + 1) << "the update's scalars";
      EXPECT_EQ(cost.recordings, before.recordings);
      EXPECT_EQ(cost.replays, before.replays + (replays ? num_passes + 1 : 0));
      cost.device_to_device -= before.device_to_device;
      if (replays) {
        // A pass: two inputs to where the graph reads them, and its losses from where it writes them.
        EXPECT_EQ(cost.device_to_device, of_plain.device_to_device + 3 * num_passes) << micro_batch;
      }
      of_plain = cost;
      ASSERT_TRUE(trainer.step.settle().is_ok());
    }
  }
}

// By the fake device's own clock, a microsecond for each kernel and copy. With micro-batches of 3 the passes are of two sizes.
TEST_F(StepGraphs, phases_add_up_to_the_devices_time_of_each_step_and_nobody_waits_for_them) {
  const torch::Tensor one = torch::ones({1}, torch::device(device_));
  const int64_t before_clones = now().microseconds();
  static_cast<void>(one.clone()), static_cast<void>(one.clone());
  const int64_t clones = now().microseconds() - before_clones;  // A step that runs ahead ends with two of its figures.
  for (const int64_t micro_batch : {8, 3}) {
    std::vector<PhaseTimes> of_plain;
    for (const bool replays : {false, true}) {
      const std::string what = c10::str("micro-batches of ", micro_batch, replays ? ", replayed" : "");
      Trainer trainer(there(), graph_options(micro_batch, replays));
      std::vector<double> whole_ms;
      for (int64_t i = 0; i < kSteps; ++i) {
        const FakeDeviceCounts begin = now();
        trainer.step.begin_step();
        const DeviceBatch batch = trainer.device_batch(i);
        const FakeDeviceCounts loaded = now();
        ASSERT_TRUE(trainer.step.run_ahead(i, batch).is_ok());
        EXPECT_EQ(now().synchronisations, loaded.synchronisations) << what;
        EXPECT_EQ(now().event_waits, loaded.event_waits) << what;
        EXPECT_EQ(now().device_to_host, loaded.device_to_host) << what;
        whole_ms.push_back(1e-3 * static_cast<double>(now().microseconds() - begin.microseconds() - clones));
        EXPECT_TRUE(trainer.step.take_phase_times().empty()) << "nobody has waited for the device";
      }
      const int64_t waits = now().synchronisations;
      ASSERT_TRUE(trainer.step.settle().is_ok());
      EXPECT_EQ(now().synchronisations, waits + 2) << "losses and norms, as without times";
      const std::vector<PhaseTimes> times = trainer.step.take_phase_times();
      ASSERT_EQ(times.size(), static_cast<size_t>(kSteps)) << what;
      EXPECT_EQ(times.back().ended_ago_ms, 0);
      for (size_t i = 0; i < times.size(); ++i) {
        EXPECT_EQ(times[i].step, static_cast<int64_t>(i));
        EXPECT_NEAR(times[i].idle_ms + times[i].forward_ms + times[i].backward_ms + times[i].update_ms, whole_ms[i], 1e-9) << what << i;
        EXPECT_GT(times[i].idle_ms, 0) << what;
        EXPECT_GT(times[i].forward_ms, 0) << what;
        EXPECT_GT(times[i].backward_ms, times[i].update_ms / 100) << what;
        if (i > 0) {
          EXPECT_NEAR(times[i - 1].ended_ago_ms - times[i].ended_ago_ms, whole_ms[i] + 1e-3 * static_cast<double>(clones), 1e-9) << what;
        }
      }
      if (replays) {
        // The same passes, beside the copies to where the graphs read and write: three of each pass.
        const double copies_ms = 3e-3 * static_cast<double>((kBatch + micro_batch - 1) / micro_batch);
        const PhaseTimes &got = times.back(), &want = of_plain.back();
        EXPECT_NEAR(got.forward_ms + got.backward_ms, want.forward_ms + want.backward_ms + copies_ms, 1e-9) << what;
        EXPECT_NEAR(got.forward_ms, want.forward_ms, copies_ms) << what;
        EXPECT_EQ(got.update_ms, want.update_ms) << what;
      }
      of_plain = times;
    }
  }
}

TEST_F(StepGraphs, phases_are_told_of_each_step_that_is_looked_at_and_on_the_cpu) {
  for (const FlatParametersOptions& where : {here(), there()}) {
    Trainer trainer(where, graph_options(2));
    for (int64_t i = 0; i < kSteps; ++i) {
      ASSERT_TRUE(trainer.step.run(i, trainer.device_batch(i)).is_ok());
      const std::vector<PhaseTimes> times = trainer.step.take_phase_times();
      ASSERT_EQ(times.size(), 1U);
      EXPECT_EQ(times[0].step, i);
      EXPECT_GT(times[0].forward_ms, 0) << where.device;
      EXPECT_GT(times[0].backward_ms, 0) << where.device;
    }
  }
  Trainer trainer(here(), graph_options(8));
  for (int64_t i = 0; i < 2 * TrainStep::kMostAhead + 3; ++i) {  // Nobody takes them.
    ASSERT_TRUE(trainer.step.run(i, trainer.device_batch(i)).is_ok());
  }
  const std::vector<PhaseTimes> times = trainer.step.take_phase_times();
  ASSERT_EQ(times.size(), static_cast<size_t>(2 * TrainStep::kMostAhead));
  EXPECT_EQ(times.back().step, 2 * TrainStep::kMostAhead + 2);
}

TEST_F(StepGraphs, a_replayed_step_that_is_not_finite_changes_nothing_and_the_next_go_on) {
  Trainer want(here(torch::kBFloat16), graph_options(3)), got(there(torch::kBFloat16), graph_options(3));
  run_both(got, want, 0, 6);
  for (Trainer* trainer : {&want, &got}) {
    DeviceBatch batch = trainer->device_batch(6);
    batch.inputs[0][5].fill_(std::nan(""));
    const torch::Tensor before = trainer->flat.values().clone();
    EXPECT_EQ(trainer->step.run(6, batch).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(trainer->step.was_not_finite());
    EXPECT_EQ(trainer->step.non_finite_samples(), std::vector<int64_t>{5});
    EXPECT_TRUE(torch::equal(trainer->flat.values().cpu(), before.cpu()));
  }
  EXPECT_EQ(got.adamw.num_updates(), 6);
  run_both(got, want, 7, 3);
  expect_same(got, want, "after a step that was left out");
}

TEST_F(StepGraphs, replays_see_weights_that_were_lent_and_state_that_was_restored) {
  Trainer want(here(torch::kBFloat16), graph_options(2)), got(there(torch::kBFloat16), graph_options(2));
  run_both(got, want, 0, 6);
  { const EmaScope averaged(got.flat, got.ema); }
  run_both(got, want, 6, 1);
  const FlatRange whole{0, want.flat.num_elements()};
  const torch::Tensor restored = torch::arange(whole.count, torch::kFloat32).sin();
  for (Trainer* trainer : {&want, &got}) {
    trainer->flat.set_canonical_range(trainer->flat.values(), whole, restored);
    trainer->flat.set_canonical_range(trainer->adamw.second_moment(), whole, restored.square());
    trainer->flat.refresh_compute_copy();
    trainer->adamw.set_num_updates(40);
  }
  run_both(got, want, 40, 2);
  expect_same(got, want, "after restoring");
}

TEST_F(StepGraphs, another_size_of_batch_is_recorded_anew) {
  Trainer want(here(), graph_options(2)), got(there(), graph_options(2));
  run_both(got, want, 0, 5);
  run_both(got, want, 5, 5, 6);
  run_both(got, want, 10, 2, 8);
  expect_same(got, want, "after other sizes");
}

// A loss that looks at a value: the first passes only count it, but it cannot be recorded.
TEST_F(StepGraphs, passes_that_wait_for_the_device_cannot_be_recorded) {
  Trainer trainer(there(), graph_options(8));
  const auto step = [&](int64_t i) {
    DeviceBatch batch = trainer.device_batch(i);
    batch.losses = [&](const std::vector<torch::Tensor>& inputs) {
      const torch::Tensor losses = trainer.losses_of(inputs[0]);
      return losses / losses.detach().max().item<double>();
    };
    return trainer.step.run(i, batch);
  };
  for (int64_t i = 0; i < DeviceGraph::kWarmUpCalls; ++i) {
    const int64_t before = now().synchronisations;
    ASSERT_TRUE(step(i).is_ok());
    EXPECT_GE(now().synchronisations, before + 2) << "the loss, and the end of the step";
  }
  EXPECT_THROW(static_cast<void>(step(DeviceGraph::kWarmUpCalls)), c10::Error);
}

// What the header forbids: a number that the host changes from step to step.
TEST_F(StepGraphs, a_number_of_the_host_stays_what_it_was_and_the_comparison_sees_it) {
  std::vector<double> losses;
  for (const bool replays : {false, true}) {
    Trainer trainer(there(), graph_options(8, replays));
    double factor = 0;
    DeviceBatch batch = trainer.device_batch(0);
    batch.losses = [&](const std::vector<torch::Tensor>& inputs) { return trainer.losses_of(inputs[0]) * factor; };
    for (int64_t i = 0; i < DeviceGraph::kWarmUpCalls + 2; ++i) {
      factor = 1.0 + static_cast<double>(i);
      losses.push_back(trainer.step.run(i, batch)->loss);
    }
  }
  const size_t half = losses.size() / 2;
  for (size_t i = 0; i + 1 < half; ++i) {
    EXPECT_EQ(losses[half + i], losses[i]) << i;
  }
  EXPECT_NE(losses.back(), losses[half - 1]) << "the first replay had the number with which it was recorded";
}

// A dataset may hold latents of two types; a batch has the wider one of its own. Passes are recorded in their fourth call.
TEST_F(StepGraphs, inputs_of_another_type_or_size_are_recorded_anew) {
  struct Part {
    torch::ScalarType type;
    int64_t side, steps, recordings;
  };
  const Part parts[] = {{torch::kFloat16, 6, 5, 3}, {torch::kFloat32, 6, 5, 2}, {torch::kFloat16, 6, 1, 0}, {torch::kFloat32, 6, 1, 0},
                        {torch::kFloat16, 6, 1, 0}, {torch::kFloat16, 4, 5, 2}, {torch::kFloat32, 6, 4, 2}};
  Trainer want(here(), graph_options(3)), got(there(), graph_options(3)), plain(there(), graph_options(3, false));
  int64_t number = 0;
  for (const Part& part : parts) {
    const std::string what = c10::str(torch::toString(part.type), ", side ", part.side, ", before step ", number + part.steps);
    const FakeDeviceCounts before = now();
    for (int64_t i = 0; i < part.steps; ++i, ++number) {
      for (Trainer* trainer : {&want, &got, &plain}) {
        DeviceBatch batch = trainer->device_batch(number);
        batch.inputs[0] = batch.inputs[0].to(part.type).narrow(2, 0, part.side).narrow(3, 0, part.side).contiguous();
        ASSERT_TRUE(trainer->step.run(number, batch).is_ok()) << what;
      }
    }
    EXPECT_EQ(now().recordings - before.recordings, part.recordings) << what << ": passes of 3 and of 2, and once the update";
    expect_same(got, want, what);
    expect_same(plain, want, what + ", without graphs");
  }
}

TEST_F(StepGraphs, another_number_of_inputs_is_a_bug) {
  Trainer trainer(there(), graph_options(8));
  ASSERT_TRUE(trainer.step.run(0, trainer.device_batch(0)).is_ok());
  DeviceBatch batch = trainer.device_batch(1);
  batch.inputs.pop_back();
  EXPECT_THROW(static_cast<void>(trainer.step.run(1, batch)), CheckFailure);
}

}  // namespace
}  // namespace darkroom
