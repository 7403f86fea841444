#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/train/recipe.h"
#include "darkroom/tune/planner.h"
#include "darkroom/tune/tune_report.h"

namespace darkroom {

/// What is equal between the trials whose losses are compared.
enum class TuneScore { kLossAtSamples, kLossAtBudget };

/// "loss-at-samples", "loss-at-budget".
const char* score_name(TuneScore score);

struct TuneOptions {
  Recipe recipe = {};                    ///< Resolved, places and validation among them.
  std::string output = {};               ///< A folder of this machine.
  std::vector<std::string> ranges = {};  ///< Of --set-range; none: default_search_axes().
  TuneStrategy strategy = TuneStrategy::kHalving;
  TuneScore score = TuneScore::kLossAtSamples;
  double budget_seconds = 0;                  ///< Of all starts together.
  int64_t num_trials = 0;                     ///< 0: 27 of halving, 9 of random, a whole grid; of halving fewer where the budget is short.
  int64_t num_samples = 0;                    ///< That a full trial sees; 0: what fits into the budget.
  int64_t grid_points = 3;                    ///< Of a range in a grid.
  int64_t num_workers = 1;                    ///< Trials side by side.
  uint64_t seed = 0;                          ///< Of what is drawn.
  std::vector<std::string> train_flags = {};  ///< Of every trial: --no-sandbox.
  std::vector<std::string> launcher = {};     ///< What runs a trial's command, which is added to these words; none: this program does.
  TunePrice price = {};

  /// Trials that share one machine: behind a launcher each counts as on one of its own.
  int64_t num_sharing() const { return launcher.empty() ? num_workers : 1; }
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// How many trials this machine runs side by side without one waiting for another's cores or memory: 1 on a GPU. `trial_bytes`: what one
/// holds in the machine's memory.
int64_t default_tune_workers(const Recipe& recipe, const std::string& device, int64_t trial_bytes, int64_t memory_bytes, int64_t num_cores);

/// Searches, or goes on with a search, until all its stages have ended or its budget is spent (docs/tune.md); writes report.html,
/// report.json and best.toml, also when it is stopped. Trials are programs of their own: this one uses no torch operation.
/// Errors: kInvalidArgument (options, before anything is written), kFailedPrecondition (another process or another search in the folder; no
/// trial was scored), kCancelled (stopped: trials ended with a checkpoint, and the same command goes on), kCorruptData of the ledger, those
/// of the files. `summary` gets what docs/command_line.md says of `tune`.
Status run_tune(const TuneOptions& options, const std::stop_token& stop, nlohmann::json& summary);

}  // namespace darkroom
