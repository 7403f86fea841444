#include "darkroom/optim/train_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "darkroom/core/check.h"
#include "support/counted_memory.h"
#include "support/simulated_rank.h"
#include "support/tensor_error.h"
#include "toy_network.h"

namespace darkroom {
namespace {

// A network with all that trains it.
struct Trainer {
  explicit Trainer(TrainStepOptions options = default_options())
      : flat(network), adamw(flat, {}), ema(flat, {}), step(flat, adamw, &ema, options) {}

  static TrainStepOptions default_options() {
    return {.micro_batch = 4, .max_grad_norm = 1.0, .schedule = {.peak = 1e-2, .warmup_steps = 2}};
  }

  Result<StepReport> run(int64_t index, const DiffusionBatch& batch) {
    return step.run(index, batch.size(), [&](int64_t first, int64_t count) {
      return objective.losses(network.denoiser(), objective.prepare(batch.slice(first, count)));
    });
  }

  ToyNetwork network;
  FlatParameters flat;
  AdamW adamw;
  Ema ema;
  DiffusionObjective objective{NoiseSchedule({}), {}, toy_empty_states()};
  TrainStep step;
};

const std::vector<int> kSevenKeys = {0, 1, 2, 3, 4, 5, 6};

TEST(train_step, equals_torch_with_clipping_and_decay) {
  Trainer ours({.micro_batch = 7, .max_grad_norm = 0.05, .schedule = {.peak = 1e-2, .warmup_steps = 2}});
  ToyNetwork theirs;
  torch::optim::AdamW reference(theirs.parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(1e-2));
  for (int64_t step = 0; step < 5; ++step) {
    const DiffusionBatch batch = toy_batch(kSevenKeys, static_cast<uint32_t>(step));
    const auto report = ours.run(step, batch);
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    reference.zero_grad();
    const torch::Tensor loss = ours.objective.losses(theirs.denoiser(), ours.objective.prepare(batch)).mean();
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(theirs.parameters(), 0.05);
    static_cast<torch::optim::AdamWOptions&>(reference.param_groups()[0].options()).lr(step == 0 ? 5e-3 : 1e-2);
    reference.step();
    EXPECT_TRUE(is_near(report->loss, loss.item<double>(), 1e-5 * loss.item<double>()));
    EXPECT_TRUE(is_near(report->grad_norm, norm, 1e-4 * norm));
  }
  for (const auto& item : theirs.named_parameters()) {
    const torch::Tensor got = ours.network.named_parameters()[item.key()];
    EXPECT_TRUE(is_near(got, item.value(), 2e-5)) << item.key();  // 5 steps of at most 1e-2.
  }
}

TEST(train_step, the_split_into_micro_batches_keeps_loss_and_gradient) {
  const DiffusionBatch batch = toy_batch(kSevenKeys);
  Trainer whole({.micro_batch = 7, .schedule = {.peak = 1e-3, .warmup_steps = 0}});
  const StepReport want = whole.run(0, batch).value();
  for (const int64_t micro_batch : {1, 2, 3, 6, 100}) {
    Trainer split({.micro_batch = micro_batch, .schedule = {.peak = 1e-3, .warmup_steps = 0}});
    const StepReport got = split.run(0, batch).value();
    EXPECT_TRUE(is_near(got.loss, want.loss, 16 * std::numeric_limits<float>::epsilon() * want.loss)) << micro_batch;
    const auto want_gradients = whole.flat.gradients();
    EXPECT_TRUE(is_near(split.flat.gradients(), want_gradients, 64 * std::numeric_limits<float>::epsilon() * largest(want_gradients)))
        << micro_batch;
  }
}

TEST(train_step, the_number_of_workers_changes_no_bit) {
  const DiffusionBatch batch = toy_batch(kSevenKeys);
  const TrainStepOptions options{.micro_batch = 2, .schedule = {.peak = 1e-2, .warmup_steps = 0}};
  Trainer alone(options);
  std::vector<StepReport> want = {alone.run(0, batch).value(), alone.run(1, batch).value()};
  for (const int64_t workers : {2, 3, 4, 9}) {
    TrainStepOptions side_by_side = options;
    side_by_side.workers = workers;
    Trainer trainer(side_by_side);
    for (int64_t step = 0; step < 2; ++step) {
      const StepReport got = trainer.run(step, batch).value();
      EXPECT_EQ(got.loss, want[static_cast<size_t>(step)].loss) << workers;
      EXPECT_EQ(got.grad_norm, want[static_cast<size_t>(step)].grad_norm) << workers;
    }
    EXPECT_TRUE(at::equal(trainer.flat.gradients(), alone.flat.gradients())) << workers;
    EXPECT_TRUE(at::equal(trainer.flat.values(), alone.flat.values())) << workers;
    EXPECT_TRUE(at::equal(trainer.ema.weights(), alone.ema.weights())) << workers;
  }
}

// Parameters of one size, whose gradients autograd makes one after the other.
struct EqualVectors : torch::nn::Module {
  static constexpr int64_t kVectors = 32;
  static constexpr int64_t kSize = 4096;

  EqualVectors() {
    for (int64_t i = 0; i < kVectors; ++i) {
      register_parameter("vector" + std::to_string(i), torch::linspace(0.1, 1.0, kSize));
    }
  }
  torch::Tensor losses(int64_t count) {
    torch::Tensor sum = torch::zeros({});
    for (const torch::Tensor& vector : parameters()) {
      sum = sum + vector.square().mean();
    }
    return sum.expand({count});
  }
};

// The batch has two passes, of which each rank has one.
TEST(train_step, workers_with_one_pass_hold_no_second_set_of_gradients) {
  std::vector<torch::Tensor> bits;
  for (const int64_t workers : {1, 2}) {
    EqualVectors network;
    FlatParameters flat(network);
    SilentRanks ranks(0, 2);
    AdamW adamw(flat, {}, slice_of_rank(flat.size(), 0, 2));
    TrainStep step(flat, adamw, nullptr,
                   {.micro_batch = 4, .gradient_groups = 2, .fast_reduction = true, .workers = workers, .schedule = {.peak = 1e-2}}, ranks);
    CountedMemory counted;
    const int64_t before = counted.held();
    const auto report = step.run(0, 8, [&, here = std::this_thread::get_id()](int64_t, int64_t count) {
      EXPECT_EQ(std::this_thread::get_id(), here) << "the memory of another thread is not counted";
      return network.losses(count);
    });
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_LT(counted.peak() - before, static_cast<int64_t>(flat.gradients().nbytes()) / 2) << workers;
    bits.push_back(torch::stack({flat.values(), flat.gradients()}));
  }
  EXPECT_TRUE(torch::equal(bits[0], bits[1]));
}

TEST(train_step, a_failure_in_one_worker_is_the_steps_failure) {
  Trainer trainer({.micro_batch = 1, .workers = 3, .schedule = {.peak = 1e-2, .warmup_steps = 0}});
  const torch::Tensor before = trainer.flat.values().clone();
  const auto losses = [&](int64_t first, int64_t) -> torch::Tensor {
    DARKROOM_CHECK(first != 1, "the second sample is broken");
    return trainer.objective.losses(trainer.network.denoiser(), trainer.objective.prepare(toy_batch({static_cast<int>(first)})));
  };
  EXPECT_THROW(trainer.step.run(0, 7, losses), CheckFailure);
  EXPECT_TRUE(at::equal(trainer.flat.values(), before));
}

TEST(train_step, the_same_steps_have_the_same_bits) {
  std::vector<torch::Tensor> runs;
  for (int run = 0; run < 2; ++run) {
    Trainer trainer;
    for (int64_t step = 0; step < 4; ++step) {
      ASSERT_TRUE(trainer.run(step, toy_batch(kSevenKeys, static_cast<uint32_t>(step))).is_ok());
    }
    runs.push_back(torch::stack({trainer.flat.values(), trainer.ema.weights(), trainer.adamw.first_moment()}));
  }
  EXPECT_TRUE(torch::equal(runs[0], runs[1]));
}

TEST(train_step, learns_to_denoise_one_sample) {
  Trainer trainer({.micro_batch = 8, .schedule = {.peak = 1e-2, .warmup_steps = 5}});
  double first = 0.0;
  double last = 0.0;
  for (int64_t step = 0; step < 60; ++step) {
    const double loss = trainer.run(step, toy_batch({0, 0, 0, 0})).value().loss;
    (step == 0 ? first : last) = loss;
  }
  EXPECT_LT(last, 0.5 * first);
}

TEST(train_step, a_bad_sample_is_named_and_changes_nothing) {
  Trainer trainer;
  const torch::Tensor before = trainer.flat.values().clone();
  DiffusionBatch batch = toy_batch(kSevenKeys);
  batch.latents_nchw[5][0][0][0] = std::nan("");
  const auto report = trainer.run(12, batch);
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(report.status().message().find("12"), std::string::npos) << report.status().to_string();
  EXPECT_EQ(trainer.step.non_finite_samples(), std::vector<int64_t>{5});
  EXPECT_TRUE(torch::equal(trainer.flat.values(), before));
  EXPECT_TRUE(torch::equal(trainer.ema.weights(), before));
  EXPECT_EQ(trainer.adamw.num_updates(), 0);
  EXPECT_TRUE(trainer.run(12, toy_batch(kSevenKeys)).is_ok());
  EXPECT_TRUE(trainer.step.non_finite_samples().empty());
}

TEST(train_step, an_infinite_gradient_with_a_finite_loss_is_refused) {
  Trainer trainer;
  const torch::Tensor before = trainer.flat.values().clone();
  const auto report = trainer.step.run(3, 2, [&](int64_t, int64_t count) {
    const torch::Tensor zero = trainer.network.out->bias.sum() * 0.0;
    return (zero.sqrt() + 1.0).expand({count});  // sqrt has no finite slope at 0.
  });
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(report.status().message().find("gradient"), std::string::npos);
  EXPECT_TRUE(trainer.step.non_finite_samples().empty());
  EXPECT_TRUE(torch::equal(trainer.flat.values(), before));
}

TEST(train_step, works_without_ema_and_reports_its_rate) {
  ToyNetwork network;
  FlatParameters flat(network);
  AdamW adamw(flat, {});
  TrainStep step(flat, adamw, nullptr, {.micro_batch = 2, .schedule = {.peak = 1.0, .warmup_steps = 4}});
  const auto report = step.run(1, 2, [&](int64_t, int64_t count) { return network.out->bias.square().sum().expand({count}); });
  ASSERT_TRUE(report.is_ok());
  EXPECT_DOUBLE_EQ(report->learning_rate, 0.5);
  EXPECT_EQ(report->step, 1);
  EXPECT_GE(report->backward_ms, 0.0);
}

TEST(train_step, bad_options_are_refused) {
  EXPECT_EQ((TrainStepOptions{.micro_batch = 0, .schedule = {}}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((TrainStepOptions{.workers = 0, .schedule = {}}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((TrainStepOptions{.max_grad_norm = -1.0, .schedule = {}}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((TrainStepOptions{.schedule = {.peak = -1.0}}).validate().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
