#include <torch/torch.h>

#include "bench_setup.h"
#include "darkroom/core/median.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/tensor/multiply_adds.h"
#include "measure.h"
#include "synthetic_training.h"

namespace darkroom {
namespace {

constexpr int64_t kBackwardFactor = 3;      // Forward, and the gradients of inputs and of weights.
constexpr int64_t kPhaseSteps = 4;          // Steps of which the phases are timed; the first does not count.
constexpr double kLeastLossOfNoise = 1e-6;  // A network that has seen a few steps cannot predict noise exactly.

// Medians of the phases of steps that wait between them.
Result<nlohmann::json> time_phases(SyntheticTraining& training) {
  std::vector<double> forward_ms, backward_ms, update_ms;
  for (int64_t i = 0; i < kPhaseSteps; ++i) {
    DARKROOM_ASSIGN_OR_RETURN(const StepReport report, training.step_by_phases());
    if (i > 0) {
      forward_ms.push_back(report.forward_ms);
      backward_ms.push_back(report.backward_ms);
      update_ms.push_back(report.update_ms);
    }
  }
  return nlohmann::json{{"forward", median(forward_ms)}, {"backward", median(backward_ms)}, {"update", median(update_ms)}};
}

int64_t forward_multiply_adds_of(SyntheticTraining& training) {
  const torch::NoGradGuard no_grad;
  return count_multiply_adds([&] { training.unet()(training.latents_nchw(), training.timesteps_n(), training.states_ntw()); });
}

}  // namespace

Result<nlohmann::json> bench_train_step(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const BenchPlace place, set_up_place(options));
  DARKROOM_ASSIGN_OR_RETURN(UNetSetup setup, set_up_unet(options, place));
  SyntheticTraining training(setup.unet, setup.scheduler.noise,
                             {.device = place.device,
                              .type = place.type,
                              .replays = place.replays,
                              .batch_size = options.batch_size,
                              .num_samples = options.batch_size,
                              .side = setup.latents_nchw.size(2),
                              .seed = options.seed});
  const int64_t multiply_adds = kBackwardFactor * forward_multiply_adds_of(training);
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json phases, time_phases(training));
  Status failure;
  double loss = 0.0;
  const auto runs_ms = time_runs(options.repeats, place.device, options.stop, [&] {
    const auto report = training.step();
    if (!report.is_ok()) {
      failure = report.status();
      return;
    }
    loss = report->loss;
  });
  DARKROOM_RETURN_IF_ERROR(failure);
  if (!(loss > kLeastLossOfNoise)) {
    return Status::internal("a loss that no network can have after so few steps:", loss);
  }
  nlohmann::json figures = figures_of("images", runs_ms, static_cast<double>(options.batch_size), multiply_adds, place);
  figures["ms"].update(phases);
  figures["loss"] = loss;
  return describe(std::move(figures), options, place, setup.resolution, count_parameters(*setup.unet));
}

}  // namespace darkroom
