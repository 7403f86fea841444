#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/optim/rank_memory.h"
#include "darkroom/stores/stores.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

/// For whom a training run is planned.
struct PlanQuestion {
  int64_t num_ranks = 1;
  int64_t local_ranks = 1;     ///< Ranks on one machine, which share data.memory_bytes and its cores.
  std::string device = "cpu";  ///< Where the step runs: "cpu", or "cuda:0" of any GPU.
  double mfu = 0.4;            ///< Share of the peak that a step reaches.
  double tflops = 0;           ///< Peak of a rank in 10^12 floating-point operations per second; 0: unknown, so no hours.

  /// kInvalidArgument naming the flag.
  Status validate() const;
};

/// What a run will take, before it begins (docs/train.md): exact where it is the program's own arithmetic. Sizes are bytes.
struct TrainingPlan {
  std::string component = {};  ///< "unet" or "vae".
  int64_t parameters = 0;      ///< Trained scalars.
  std::string precision = {};
  PlanQuestion question = {};

  int64_t rank = 0;              ///< The rank that holds most; the sizes are its.
  RankMemory memory = {};        ///< Of it, on the device.
  int64_t activations = 0;       ///< Most that its passes hold at a time, one micro-batch each: kept for backward, and at work.
  bool keeps_graphs = false;     ///< Passes are recorded: activations stay, those of a smaller last micro-batch beside the others.
  bool looks = false;            ///< There are validations or previews.
  int64_t pass_gradients = 0;    ///< Of passes side by side (runtime.workers), before they are added.
  int64_t device_inputs = 0;     ///< The batch on a GPU, and the micro-batches that graphs read.
  int64_t batches = 0;           ///< In the machine's memory: at hand, ready and in the making.
  int64_t snapshot = 0;          ///< In the machine's memory: what checkpoints are written from while training goes on.
  int64_t most_samples = 0;      ///< The rank's share of data.memory_bytes: what is kept of the dataset, at most.
  int64_t shuffled_samples = 0;  ///< What its lanes shuffle at a time: should be no more than most_samples.

  int64_t global_batch = 0;
  int64_t micro_batch = 0;
  int64_t gradient_groups = 0;
  int64_t rank_samples = 0;                 ///< Of a batch.
  int64_t busiest_samples = 0;              ///< Of the rank with most, which all wait for.
  int64_t rank_passes = 0;                  ///< Forward and backward passes a step, one after the other or side by side.
  int64_t passes_at_a_time = 1;             ///< runtime.workers.
  double step_flop = 0;                     ///< Floating-point operations of all ranks a step: three forward passes of 2 per multiply-add.
  std::optional<int64_t> read_a_step = {};  ///< Of all ranks from the store, where nothing is read twice; unknown of pictures.
  int64_t sent_a_step = 0;                  ///< By a rank to the others.
  int64_t steps = 0;
  int64_t checkpoint = 0;       ///< One.
  int64_t all_checkpoints = 0;  ///< Those that are kept at the end.

  /// On the device of the step; on the CPU without batches and samples.
  int64_t peak_on_device() const;
  /// In the machine's memory by one rank.
  int64_t peak_on_host() const;
  /// Of the whole run, as long as its busiest rank takes; nothing where the peak is not known.
  std::optional<double> hours() const;
  /// Of the ranks' time in their passes what they wait for the busiest one; 0 where ranks divide the gradient groups.
  double idle_share() const;
  /// What speaks against such a run, or is not built yet.
  std::vector<std::string> remarks() const;

  std::string to_text() const;
  /// The object `estimate` of a summary (docs/train.md).
  nlohmann::json to_json() const;
};

/// Plans a run of the recipe. Reads the model folder's config.json files alone; where there is no such folder, a preset's name stands for
/// the preset. Makes nothing, opens no dataset, and takes no memory of the sizes that it tells.
/// Errors: kInvalidArgument (recipe, question; more ranks than gradient groups), those of reading the configs.
Result<TrainingPlan> plan_training(StoreSet& stores, const Recipe& recipe, const PlanQuestion& question, const std::stop_token& stop = {});

/// TrainingPlan::step_flop alone, by one forward pass on shapes, which starts none of torch's threads. Errors: as above, but those of a
/// question.
Result<double> count_step_flop(StoreSet& stores, const Recipe& recipe, const std::stop_token& stop = {});

}  // namespace darkroom
