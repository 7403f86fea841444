#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tune/search_space.h"

namespace darkroom {

enum class TuneStrategy {
  kGrid,     ///< Every combination, ranges by a few of their values, in an order drawn by the seed.
  kRandom,   ///< Drawn; each axis is cut into as many equal parts as there are trials, and each part is taken once (Latin hypercube).
  kHalving,  ///< Drawn in the same way; all begin short, and the best third of each rung goes on (synchronous successive halving).
};

/// "grid", "random", "halving".
const char* strategy_name(TuneStrategy strategy);

/// Of halving: one trial of so many goes on, and runs so many times as long.
inline constexpr int64_t kTuneEta = 3;
inline constexpr int64_t kMostTrials = 10'000;

/// Which trials there are.
struct TrialQuestion {
  TuneStrategy strategy = TuneStrategy::kHalving;
  std::vector<SearchAxis> axes = {};
  TrialSettings base = {};  ///< The recipe's own values of the axes' keys: not drawn, but the first trial, except in a grid.
  int64_t num_trials = 27;  ///< At most; a grid without a limit has all: 0.
  int64_t grid_points = 3;  ///< Of a range in a grid.
  uint64_t seed = 0;
};

/// The trials, each with a value of every axis (the first, unless it is a grid, with none: the recipe as it is). No two are alike; where
/// the axes have fewer combinations than asked for, all of these. The same question gives the same trials on every machine, but for the
/// last digits of values of logarithmic ranges, which the C library rounds.
/// Errors: kInvalidArgument (a grid of more than kMostTrials combinations; two axes of one key; no axis).
Result<std::vector<TrialSettings>> draw_trials(const TrialQuestion& question);

/// A stop at which trials are compared.
struct Rung {
  double share = 1;        ///< Of a trial's full length.
  int64_t num_trials = 0;  ///< That run until here.

  bool operator==(const Rung&) const = default;
};

/// The rungs of a strategy for so many trials: one of the full length, or of halving those that end with the full length, each
/// kTuneEta times as long as the one before, with the largest whole number of trials that is at most one of kTuneEta of it, as long as
/// there is one.
std::vector<Rung> make_rungs(TuneStrategy strategy, int64_t num_trials);

/// The step at which a trial of `full_steps` steps stops at a rung: at least 1, the last rung at `full_steps`.
int64_t rung_step(const Rung& rung, int64_t full_steps);

enum class StageOutcome {
  kScored,    ///< It has a loss.
  kDiverged,  ///< Loss or gradient were not finite any more.
  kFailed,    ///< It ended otherwise, or was refused.
};

/// A trial's way from one rung to the next.
struct Stage {
  int64_t trial = 0;
  int64_t rung = 0;

  auto operator<=>(const Stage&) const = default;
};

struct StageResult {
  Stage stage = {};
  StageOutcome outcome = StageOutcome::kScored;
  double loss = 0;  ///< Of a scored one.
};

/// The stages that may run now, in the order in which they are begun, those that have no result left aside: who runs some already skips
/// them. A rung's trials are chosen when the rung before is whole, by its results alone (equal losses: the lower number), so that neither
/// the number of workers nor the order in which they end decides anything. Empty: nothing is left to do. Pure.
/// REQUIRES: one result a stage at most.
std::vector<Stage> ready_stages(const std::vector<Rung>& rungs, int64_t num_trials, const std::vector<StageResult>& results);

/// The trials that a rung's predecessor lets go on, once it is whole: the best `rungs[rung].num_trials` scored ones. Nothing before. Rung
/// 0: all.
std::optional<std::vector<int64_t>> trials_of_rung(const std::vector<Rung>& rungs, int64_t num_trials,
                                                   const std::vector<StageResult>& results, int64_t rung);

/// The trials that run no further: failed, at the last rung, or not chosen for the next one once that is settled. In their order.
std::vector<int64_t> ended_trials(const std::vector<Rung>& rungs, int64_t num_trials, const std::vector<StageResult>& results);

/// The best trial: of those scored at the highest rung that has any, the one of the lowest loss. Its index into `results`; nothing where
/// none is scored.
std::optional<size_t> best_result(const std::vector<StageResult>& results);

/// What a trial takes, for lengths that fit into a budget.
struct LengthQuestion {
  std::vector<Rung> rungs = {};
  std::vector<double> seconds_per_unit = {};  ///< Of each trial, in order: of a sample, or 1 where the length is in seconds.
  double start_seconds = 0;                   ///< That each stage takes beside its steps.
  double budget_seconds = 0;
  int64_t num_workers = 1;
};

/// The full length of a trial, in units, with which all stages are over within `kBudgetShare` of the budget; 0 where the starts alone take
/// more. Where a rung's trials are not known yet, the mean of all counts. Pure.
double affordable_length(const LengthQuestion& question);
inline constexpr double kBudgetShare = 0.9;

/// Whether a stage that is thought to take so long ends before the budget does. What nothing is known of (0 seconds) may begin while
/// any budget is left.
bool fits_budget(double predicted_seconds, double remaining_seconds);

}  // namespace darkroom
