#include <fmt/format.h>

#include <cmath>

#include "bench/synthetic_training.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/presets.h"
#include "parity.h"

namespace darkroom {
namespace {

constexpr int64_t kSteps = 5;
constexpr int64_t kBatches = 8;        // Of the synthetic dataset.
constexpr double kLossBound = 1e-5;    // float32: ten times what two programs on one CPU may differ by, for another order of sums.
constexpr double kWeightBound = 1e-3;  // float32: of the way that the weights went.

struct Outcome {
  std::vector<double> losses;
  torch::Tensor start, end;  // Weights by name, float64 on the CPU.
};

torch::Tensor all_weights(const FlatParameters& parameters) {
  std::vector<torch::Tensor> weights;
  for (const auto& [name, view] : parameters.named_views(parameters.values())) {
    weights.push_back(view.to(torch::kCPU, torch::kFloat64).contiguous().flatten());
  }
  return torch::cat(weights);
}

Result<std::unique_ptr<SyntheticTraining>> start_training(const std::string& preset_name, int64_t batch_size, const torch::Device& device,
                                                          torch::ScalarType type) {
  constexpr uint64_t kSeed = 5;
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(preset_name));
  DARKROOM_ASSIGN_OR_RETURN(const SchedulerConfig scheduler, SchedulerConfig::from_json(preset.scheduler));
  UNet2DConditionModel unet(preset.unet);
  initialize_parameters(unet, kSeed);
  return std::make_unique<SyntheticTraining>(std::move(unet), scheduler.noise,
                                             SyntheticTrainingOptions{.device = device,
                                                                      .type = type,
                                                                      .replays = !device.is_cpu(),
                                                                      .batch_size = batch_size,
                                                                      .num_samples = kBatches * batch_size,
                                                                      .side = preset.unet.sample_size,
                                                                      .seed = kSeed});
}

Result<Outcome> train(const std::string& preset, int64_t batch_size, int64_t num_steps, const torch::Device& device,
                      torch::ScalarType type) {
  DARKROOM_ASSIGN_OR_RETURN(const auto training, start_training(preset, batch_size, device, type));
  Outcome outcome{.losses = {}, .start = all_weights(training->parameters()), .end = {}};
  for (int64_t step = 0; step < num_steps; ++step) {
    DARKROOM_ASSIGN_OR_RETURN(const StepReport report, training->step());
    outcome.losses.push_back(report.loss);
  }
  outcome.end = all_weights(training->parameters());
  return outcome;
}

double worst_loss(const Outcome& got, const Outcome& want) {
  double worst = 0;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    const double error = std::abs(got.losses[i] - want.losses[i]) / want.losses[i];
    worst = std::isnan(error) ? error : std::max(worst, error);
  }
  return worst;
}

}  // namespace

Result<std::vector<Comparison>> compare_training(const torch::Device& device) {
  constexpr int64_t kBatchSize = 4;
  DARKROOM_ASSIGN_OR_RETURN(const Outcome want, train("tiny", kBatchSize, kSteps, torch::kCPU, torch::kFloat32));
  DARKROOM_ASSIGN_OR_RETURN(const Outcome wide, train("tiny", kBatchSize, kSteps, device, torch::kFloat32));
  DARKROOM_ASSIGN_OR_RETURN(const Outcome narrow, train("tiny", kBatchSize, kSteps, device, torch::kBFloat16));
  const double way = (want.end - want.start).norm().item<double>();
  const double apart = (wide.end - want.end).norm().item<double>();
  return std::vector<Comparison>{{"training: losses of 5 steps", "float32", worst_loss(wide, want), kLossBound},
                                 {"training: weights after 5 steps, share of their way", "float32", apart / way, kWeightBound},
                                 {"training: losses of 5 steps", "bfloat16", worst_loss(narrow, want), bfloat16_bound(kRoundingsForward)}};
}

Result<std::string> loss_curves(const std::string& preset, int64_t batch_size, int64_t num_steps, const torch::Device& device) {
  DARKROOM_ASSIGN_OR_RETURN(const Outcome wide, train(preset, batch_size, num_steps, device, torch::kFloat32));
  DARKROOM_ASSIGN_OR_RETURN(const Outcome narrow, train(preset, batch_size, num_steps, device, torch::kBFloat16));
  std::string csv = "step,float32,bfloat16\n";
  for (size_t i = 0; i < wide.losses.size(); ++i) {
    csv += fmt::format("{},{:.9g},{:.9g}\n", i + 1, wide.losses[i], narrow.losses[i]);
  }
  return csv;
}

}  // namespace darkroom
