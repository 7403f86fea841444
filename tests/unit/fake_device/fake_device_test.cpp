#include "support/fake_device/fake_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "darkroom/core/check.h"
#include "darkroom/tensor/device.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/upload.h"
#include "on_fake_device.h"
#include "small_trainer.h"

namespace darkroom {
namespace {

// The fake device itself, and what training does on it, in one process.
class FakeDevice : public OnFakeDevice {
 protected:
  static FakeDeviceCounts now() { return *fake_device_counts(); }
};

using FakeDeviceDeathTest = FakeDevice;

// There is one GPU. CUDA_VISIBLE_DEVICES tells of it either to each rank, or to who started them all.
TEST_F(FakeDevice, the_one_gpu_that_is_seen_is_a_ranks_own_where_a_launcher_shows_it) {
  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "0", 1), 0);
  for (const int64_t rank : {0, 1}) {
    for (const char* device : {"auto", "cuda"}) {
      EXPECT_EQ(resolve_rank_device(device, rank, 2, RankStarter::kLauncher).value(), "cuda:0") << device << " " << rank;
    }
    EXPECT_EQ(resolve_rank_device("auto", rank, 2, RankStarter::kThisProgram).value(), "cpu") << rank;
    EXPECT_EQ(resolve_rank_device("cuda", rank, 2, RankStarter::kThisProgram).status().code(), StatusCode::kUnavailable) << rank;
    EXPECT_EQ(resolve_rank_device("auto", 0, 1, RankStarter::kThisProgram).value(), "cuda:0");
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(resolve_rank_device("auto", 1, 2, RankStarter::kLauncher).value(), "cpu");
}

TEST_F(FakeDeviceDeathTest, the_host_cannot_touch_the_devices_memory) {
  const torch::Tensor tensor = torch::ones({4}, there_);
  std::array<float, 4> values{};
  const auto read = [&] {
    std::memcpy(values.data(), tensor.const_data_ptr(), sizeof(values));
    std::fprintf(stderr, "%f", static_cast<double>(values[0]));  // Else nobody needs the copy.
  };
  EXPECT_EXIT(read(), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(tensor.data_ptr<float>()[2] = 1, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(torch::from_blob(tensor.data_ptr(), {4}).add_(1), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FakeDevice, tensors_of_the_host_and_of_the_device_do_not_mix) {
  const torch::Tensor there = torch::ones({4}, there_), here = torch::ones({4});
  EXPECT_THROW(static_cast<void>(there + here), c10::Error);
  EXPECT_THROW(static_cast<void>(torch::cat({there, here})), c10::Error);
  EXPECT_THROW(static_cast<void>(torch::linear(torch::ones({2, 4}, there_), torch::ones({3, 4}))), c10::Error);
  EXPECT_THROW(static_cast<void>(there.index_select(0, torch::tensor({0, 1}))), c10::Error);
}

TEST_F(FakeDevice, copies_and_waits_are_counted) {
  FakeDeviceCounts before = now();
  const torch::Tensor there = torch::full({4}, 2.0, there_);
  EXPECT_EQ(now().host_to_device, before.host_to_device);
  EXPECT_EQ(there.sum().item<float>(), 8.0F);
  EXPECT_EQ(now().synchronisations, before.synchronisations + 1);
  static_cast<void>(there.cpu());
  EXPECT_EQ(now().device_to_host, before.device_to_host + 1);
  EXPECT_EQ(now().synchronisations, before.synchronisations + 2);
  static_cast<void>(torch::ones({4}).to(device_));
  EXPECT_EQ(now().host_to_device, before.host_to_device + 1);
  EXPECT_EQ(now().host_to_device_bytes, before.host_to_device_bytes + 16);
  EXPECT_EQ(now().synchronisations, before.synchronisations + 3) << "ordinary memory is not copied beside the host's work";
  static_cast<void>(torch::nonzero(there));
  EXPECT_EQ(now().synchronisations, before.synchronisations + 4) << "a shape that depends on values";
}

TEST_F(FakeDevice, copies_from_and_to_page_locked_memory_are_late) {
  const torch::Tensor staging = empty_staging({4}, torch::kFloat32, device_);
  staging.copy_(torch::full({4}, 7.0, there_), /*non_blocking=*/true);
  EXPECT_TRUE(std::isnan(staging.const_data_ptr<float>()[0])) << "nobody has waited for it";
  synchronize(device_);
  EXPECT_EQ(staging.const_data_ptr<float>()[0], 7.0F);
  const torch::Tensor there = torch::empty({4}, there_);
  there.copy_(staging, /*non_blocking=*/true);
  staging.fill_(5);
  EXPECT_THROW(synchronize(device_), c10::Error) << "what is being copied was overwritten";
}

TEST_F(FakeDevice, an_upload_lets_its_source_be_changed_at_once_and_does_not_wait_for_the_device) {
  const FakeDeviceCounts before = now();
  Upload upload(device_);
  const torch::Tensor source = torch::empty({3}), target = torch::empty({3}, there_);
  std::vector<torch::Tensor> seen;
  for (int i = 0; i < 5; ++i) {
    source.fill_(i);
    upload.send(source, target);
    seen.push_back(target.clone());
  }
  EXPECT_EQ(now().synchronisations, before.synchronisations);
  EXPECT_EQ(now().host_to_device, before.host_to_device + 5);
  synchronize(device_);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(seen[static_cast<size_t>(i)].cpu()[0].item<float>(), static_cast<float>(i));
  }
  EXPECT_THROW(upload.send(torch::empty({2}), target), CheckFailure);
}

TEST_F(FakeDevice, a_graph_replays_and_a_function_that_waits_cannot_be_recorded) {
  const torch::Tensor input = torch::zeros({5}, there_), sum = torch::zeros({5}, there_);
  int64_t calls = 0;
  DeviceGraph graph(device_, [&] {
    ++calls;
    sum.add_((input * 2).exp());
  });
  torch::Tensor want = torch::zeros({5});
  for (int64_t run = 1; run <= DeviceGraph::kWarmUpCalls + 3; ++run) {
    const torch::Tensor value = torch::full({5}, 0.1 * static_cast<double>(run));
    input.copy_(value);
    graph.run();
    want += (value * 2).exp();
    EXPECT_TRUE(torch::equal(sum.cpu(), want)) << run;
  }
  EXPECT_EQ(calls, DeviceGraph::kWarmUpCalls + 1);
  bool looks = false;
  DeviceGraph waiting(device_, [&] { static_cast<void>(looks ? sum.sum().item<float>() : 0.0F); });
  for (int64_t run = 0; run < DeviceGraph::kWarmUpCalls; ++run) {
    waiting.run();
  }
  looks = true;
  EXPECT_THROW(waiting.run(), c10::Error);
}

TEST_F(FakeDevice, steps_that_run_ahead_have_the_bits_of_steps_that_are_looked_at_and_wait_for_nothing) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    for (const int64_t micro_batch : {4, 1}) {
      Trainer looked({.compute_type = type}, step_options(micro_batch)), ahead(like_gpu(device_, type), step_options(micro_batch));
      double last_loss = 0;
      for (int64_t i = 0; i < 5; ++i) {
        const auto report = looked.step.run(i, 4, looked.losses(looked.batch(i)));
        ASSERT_TRUE(report.is_ok());
        last_loss = report->loss;
        const torch::Tensor batch = ahead.batch(i);
        const FakeDeviceCounts before = now();
        if (i < 4) {
          ASSERT_TRUE(ahead.step.run_ahead(i, 4, ahead.losses(batch)).is_ok());
          EXPECT_EQ(now().synchronisations, before.synchronisations);
          EXPECT_EQ(now().host_to_device, before.host_to_device + 1) << "the update's scalars";
          continue;
        }
        const auto last = ahead.step.run(i, 4, ahead.losses(batch));
        ASSERT_TRUE(last.is_ok());
        EXPECT_EQ(last->loss, last_loss);
      }
      const FlatRange whole{0, looked.flat.num_elements()};
      for (const auto& [want, got] : {std::pair(looked.flat.values(), ahead.flat.values()),
                                      {looked.ema.weights(), ahead.ema.weights()},
                                      {looked.adamw.first_moment(), ahead.adamw.first_moment()}}) {
        EXPECT_TRUE(torch::equal(ahead.flat.canonical_range(got, whole), looked.flat.canonical_range(want, whole)));
      }
    }
  }
}

TEST_F(FakeDevice, a_bad_step_that_ran_ahead_is_named_when_somebody_looks) {
  Trainer trainer(like_gpu(device_, torch::kFloat32));
  for (int64_t i = 0; i < 4; ++i) {
    torch::Tensor batch = trainer.batch(i);
    if (i == 1) {
      batch[2].fill_(std::nan(""));
    }
    ASSERT_TRUE(trainer.step.run_ahead(i, 4, trainer.losses(batch)).is_ok());
  }
  const Status settled = trainer.step.settle();
  EXPECT_EQ(settled.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(trainer.step.was_not_finite());
  EXPECT_EQ(trainer.step.report().step, 1);
  EXPECT_EQ(trainer.step.non_finite_samples(), std::vector<int64_t>{2});
  EXPECT_TRUE(trainer.step.settle().is_ok()) << "told once";
}

TEST_F(FakeDevice, no_more_steps_run_ahead_than_promised) {
  Trainer trainer(like_gpu(device_, torch::kFloat32));
  const torch::Tensor batch = trainer.batch(0);
  const int64_t before = now().synchronisations;
  for (int64_t i = 0; i < TrainStep::kMostAhead; ++i) {
    ASSERT_TRUE(trainer.step.run_ahead(i, 4, trainer.losses(batch)).is_ok());
  }
  EXPECT_EQ(now().synchronisations, before);
  ASSERT_TRUE(trainer.step.run_ahead(TrainStep::kMostAhead, 4, trainer.losses(batch)).is_ok());
  EXPECT_GT(now().synchronisations, before);
}

TEST_F(FakeDevice, any_part_of_a_padded_buffer_has_the_canonical_order) {
  Trainer plain({}), padded(like_gpu(device_, torch::kFloat32));
  ASSERT_GT(padded.flat.size(), plain.flat.size());
  ASSERT_EQ(padded.flat.num_elements(), plain.flat.size());
  for (const FlatRange range : {FlatRange{0, plain.flat.size()}, FlatRange{3, 140}, FlatRange{139, 2}, FlatRange{5, 0}}) {
    EXPECT_TRUE(
        torch::equal(padded.flat.canonical_range(padded.flat.values(), range), plain.flat.values().narrow(0, range.first, range.count)));
    const torch::Tensor other = torch::arange(range.count, torch::kFloat32);
    torch::Tensor want = plain.flat.values().clone();
    want.narrow(0, range.first, range.count).copy_(other);
    const torch::Tensor flat = padded.flat.values().clone();
    padded.flat.set_canonical_range(flat, range, other);
    EXPECT_TRUE(torch::equal(padded.flat.canonical_range(flat, {0, plain.flat.size()}), want));
  }
}

}  // namespace
}  // namespace darkroom
