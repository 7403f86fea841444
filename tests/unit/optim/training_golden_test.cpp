#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/nn/unet.h"
#include "darkroom/optim/objective.h"
#include "darkroom/optim/train_step.h"
#include "support/error_bound.h"
#include "support/network_golden.h"
#include "support/reference_spread.h"
#include "support/source_path.h"

namespace darkroom {
namespace {

constexpr int64_t kNumSteps = 5;

struct Case {
  PredictionType prediction;
  double min_snr_gamma;
};

// Trains the network of the golden file on its batches: losses, gradient norms, weights and their average are to be PyTorch's.
class TrainingGoldenTest : public testing::TestWithParam<Case> {
 protected:
  TrainingGoldenTest()
      : golden_(NetworkGolden::open(source_path("tests/golden/optim/training_run.safetensors")).value()),
        spreads_(read_spread("optim")),
        network_(UNetConfig::from_json(golden_.config).value()),
        objective_(NoiseSchedule({.prediction_type = GetParam().prediction}),
                   {.caption_drop = 0, .min_snr_gamma = GetParam().min_snr_gamma}, {}) {
    fill_parameters(*network_);
  }

  /// The golden batch of a step, made ready without darkroom's own draws.
  DiffusionInputs inputs(int64_t step) const {
    const auto given = [&](const char* name) { return golden_.tensor("step." + std::to_string(step) + "." + name); };
    const NoiseSchedule& schedule = objective_.schedule();
    DiffusionInputs inputs;
    inputs.noise_nchw = given("noise");
    inputs.timesteps_n = given("timestep");
    inputs.states_ntw = given("caption_states");
    inputs.weights_n = objective_.loss_weights(inputs.timesteps_n);
    inputs.noisy_nchw = schedule.add_noise(given("latents"), inputs.noise_nchw, inputs.timesteps_n);
    inputs.target_nchw = schedule.target(given("latents"), inputs.noise_nchw, inputs.timesteps_n);
    return inputs;
  }

  static std::string name_of(const std::string& what) { return std::string(prediction_type_name(GetParam().prediction)) + "." + what; }
  torch::Tensor want(const std::string& name) const { return golden_.tensor(name_of(name)); }
  /// Room for what PyTorch itself makes of this on another processor.
  double spread(const std::string& name) const { return kSpreadSafety * spreads_.value(name_of(name), 0.0); }

  // ||w - w_ref|| <= 1e-3 * ||w_ref - w_0||: one by one, Adam amplifies what is zero but for rounding.
  void expect_near_the_reference(const std::string& prefix, const std::map<std::string, torch::Tensor>& first,
                                 const std::vector<std::pair<std::string, torch::Tensor>>& weights) const {
    double apart = 0, moved = 0;  // Squared.
    for (const auto& [name, got] : weights) {
      const auto reference = want(prefix + name).to(torch::kFloat64);
      apart += (thinned(got) - reference).square().sum().item<double>();
      moved += (reference - first.at(name)).square().sum().item<double>();
    }
    EXPECT_GT(moved, 0.0);
    EXPECT_TRUE(error_within(std::sqrt(apart), 1e-3 * std::sqrt(moved) + spread(prefix))) << prefix;
  }

  NetworkGolden golden_;
  nlohmann::json spreads_;
  UNet2DConditionModel network_;
  DiffusionObjective objective_;
};

TEST_P(TrainingGoldenTest, five_steps_equal_pytorch) {
  std::map<std::string, torch::Tensor> first;
  for (const auto& item : network_->named_parameters()) {
    first[item.key()] = thinned(item.value()).clone();
  }
  FlatParameters flat(*network_);
  AdamW adamw(flat, {});
  Ema ema(flat, {.decay = 0.999});
  TrainStep train_step(flat, adamw, &ema, {.micro_batch = 3, .max_grad_norm = 1.0, .schedule = {.peak = 1e-4, .warmup_steps = 0}});
  const auto denoise = [&](const torch::Tensor& noisy, const torch::Tensor& timesteps_n, const torch::Tensor& states) {
    return network_(noisy, timesteps_n, states);
  };
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const DiffusionInputs batch = inputs(step);
    const auto report =
        train_step.run(step, batch.timesteps_n.numel(), [&](int64_t, int64_t) { return objective_.losses(denoise, batch); });
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    const double loss = want("losses")[step].item<double>(), norm = want("grad_norms")[step].item<double>();
    EXPECT_TRUE(is_near(report->loss, loss, (1e-6 + spread("losses")) * loss)) << step;
    EXPECT_TRUE(is_near(report->grad_norm, norm, (1e-5 + spread("grad_norms")) * norm)) << step;
  }
  expect_near_the_reference("weights.", first, flat.named_views(flat.values()));
  expect_near_the_reference("ema.", first, flat.named_views(ema.weights()));
}

INSTANTIATE_TEST_SUITE_P(Objectives, TrainingGoldenTest,
                         testing::Values(Case{PredictionType::kEpsilon, 0.0}, Case{PredictionType::kVelocity, 5.0}),
                         [](const auto& info) { return std::string(prediction_type_name(info.param.prediction)); });

}  // namespace
}  // namespace darkroom
