#include "demo_training.h"

#include <algorithm>
#include <chrono>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kTrialSteps = 24;
constexpr int64_t kFewestSteps = 50;
constexpr int64_t kWarmupShare = 10;   // A tenth of a short run warms the learning rate up.
constexpr int64_t kPreviewsOfRun = 4;  // Rows of samples in the report.

Result<double> measure_images_per_second(FileSystem& files, const DemoTrainingOptions& options, const std::stop_token& stop) {
  TrainOptions trial;
  trial.recipe = options.recipe;
  trial.output = options.trial_run;
  trial.recipe.schedule.max_steps = kTrialSteps;
  trial.recipe.samples.every_steps = 0;
  trial.recipe.checkpoint.every_steps = 0;
  DARKROOM_ASSIGN_OR_RETURN(const TrainSummary summary, run_training(trial, stop));
  DARKROOM_RETURN_IF_ERROR(files.remove_tree(options.trial_run));
  return summary.images_per_second;
}

}  // namespace

int64_t plan_steps(double seconds, double images_per_second, int64_t global_batch) {
  const double steps = seconds * images_per_second / static_cast<double>(global_batch);
  return std::max(kFewestSteps, static_cast<int64_t>(std::max(0.0, steps)));
}

Status train_for_time(FileSystem& files, const DemoTrainingOptions& options, const std::stop_token& stop, TrainSummary& summary) {
  const auto start = SteadyClock::now();
  DARKROOM_ASSIGN_OR_RETURN(const double images_per_second, measure_images_per_second(files, options, stop));
  const double seconds_left = options.seconds - std::chrono::duration<double>(SteadyClock::now() - start).count();
  TrainOptions training;
  training.recipe = options.recipe;
  training.output = options.run;
  Recipe& recipe = training.recipe;
  recipe.schedule.max_steps = plan_steps(seconds_left, images_per_second, recipe.batch.global);
  recipe.schedule.warmup_steps = std::min(recipe.schedule.warmup_steps, recipe.schedule.max_steps / kWarmupShare);
  recipe.samples.every_steps = (recipe.schedule.max_steps + kPreviewsOfRun - 1) / kPreviewsOfRun;  // The last one is the end's.
  recipe.checkpoint.every_steps = 0;
  log_info("a trial ran at {:.0f} img/s: {} steps fit into the {:.0f} s that are left for training", images_per_second,
           recipe.schedule.max_steps, std::max(0.0, seconds_left));
  return run_training(training, stop, summary);
}

}  // namespace darkroom
