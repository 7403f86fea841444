#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/train/recipe.h"
#include "darkroom/train/train_loop.h"

namespace darkroom {

struct DemoTrainingOptions {
  Recipe recipe;          ///< With data.path and model.path filled in.
  std::string run;        ///< Run folder.
  std::string trial_run;  ///< Of the trial; removed afterwards.
  double seconds = 0;     ///< For trial and training together.
};

/// Steps that fit into `seconds` at `images_per_second`, at least 50 (the losses are means over 50 steps).
int64_t plan_steps(double seconds, double images_per_second, int64_t global_batch);

/// Trains for a given time: a trial of a few steps measures this machine's speed, so that the number of steps, which the
/// learning rate's decay needs to know, is fixed before the run starts.
/// Errors: run_training's. `summary` gets the run's figures, those of one that failed or was stopped, too.
Status train_for_time(FileSystem& files, const DemoTrainingOptions& options, const std::stop_token& stop, TrainSummary& summary);

}  // namespace darkroom
