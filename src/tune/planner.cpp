#include "darkroom/tune/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

// The draw of a trial's value of an axis, in [0, 1): of `num_parts` equal parts of the axis each has one trial.
class StratifiedDraws {
 public:
  StratifiedDraws(const SearchAxis& axis, uint64_t seed, int64_t num_parts) : random_(seed, Purpose::kSelect, 0, axis.key) {
    parts_.resize(static_cast<size_t>(num_parts));
    shuffled_order(CounterRandom(seed, Purpose::kSelect, 1, axis.key), parts_);
  }
  double share(int64_t trial) const {
    const auto part = static_cast<double>(parts_[static_cast<size_t>(trial)]);
    return (part + random_.uniform(static_cast<uint64_t>(trial))) / static_cast<double>(parts_.size());
  }

 private:
  CounterRandom random_;
  std::vector<uint32_t> parts_;
};

// Of an axis without a grid's points: how many values it has; 0: a range.
int64_t num_values(const SearchAxis& axis) { return static_cast<int64_t>(axis.values.size()); }

// Every combination, the last axis fastest.
std::vector<TrialSettings> all_combinations(const std::vector<SearchAxis>& axes, int64_t points) {
  std::vector<TrialSettings> trials = {{}};
  for (const SearchAxis& axis : axes) {
    std::vector<TrialSettings> longer;
    for (const TrialSettings& trial : trials) {
      for (const std::string& value : axis.grid_values(points)) {
        longer.push_back(trial);
        longer.back().emplace_back(axis.key, value);
      }
    }
    trials = std::move(longer);
  }
  return trials;
}

// In double: it may be larger than any integer.
double num_combinations(const std::vector<SearchAxis>& axes, int64_t points) {
  return std::accumulate(axes.begin(), axes.end(), 1.0, [=](double product, const SearchAxis& axis) {
    return product * static_cast<double>(axis.grid_values(points).size());
  });
}

std::vector<TrialSettings> shuffled(const std::vector<TrialSettings>& trials, uint64_t seed) {
  std::vector<uint32_t> order(trials.size());
  shuffled_order(CounterRandom(seed, Purpose::kSelect, 2, "grid"), order);
  std::vector<TrialSettings> result;
  for (const uint32_t index : order) {
    result.push_back(trials[index]);
  }
  return result;
}

std::vector<TrialSettings> drawn_trials(const TrialQuestion& question) {
  const bool is_finite =
      std::all_of(question.axes.begin(), question.axes.end(), [](const SearchAxis& axis) { return num_values(axis) > 0; });
  std::vector<TrialSettings> candidates;
  if (is_finite && num_combinations(question.axes, 1) <= static_cast<double>(question.num_trials)) {
    candidates = shuffled(all_combinations(question.axes, 1), question.seed);
  } else {
    const int64_t num_drawn = std::max<int64_t>(1, question.num_trials - 1);  // The first is the recipe.
    std::vector<StratifiedDraws> draws;
    for (const SearchAxis& axis : question.axes) {
      draws.emplace_back(axis, question.seed, num_drawn);
    }
    for (int64_t trial = 0; trial < num_drawn; ++trial) {
      TrialSettings& settings = candidates.emplace_back();
      for (size_t i = 0; i < draws.size(); ++i) {
        settings.emplace_back(question.axes[i].key, question.axes[i].value_at(draws[i].share(trial), num_drawn));
      }
    }
  }
  std::set<TrialSettings> seen = {question.base};
  std::vector<TrialSettings> trials = {{}};
  for (TrialSettings& settings : candidates) {
    if (static_cast<int64_t>(trials.size()) < question.num_trials && seen.insert(settings).second) {
      trials.push_back(std::move(settings));
    }
  }
  return trials;
}

/// Results by their stage.
class ResultIndex {
 public:
  explicit ResultIndex(const std::vector<StageResult>& results) {
    for (const StageResult& result : results) {
      by_stage_.emplace(result.stage, &result);
    }
  }
  const StageResult* find(const Stage& stage) const {
    const auto found = by_stage_.find(stage);
    return found == by_stage_.end() ? nullptr : found->second;
  }

 private:
  std::map<Stage, const StageResult*> by_stage_;
};

}  // namespace

const char* strategy_name(TuneStrategy strategy) {
  constexpr const char* kNames[] = {"grid", "random", "halving"};
  return kNames[static_cast<size_t>(strategy)];
}

Result<std::vector<TrialSettings>> draw_trials(const TrialQuestion& question) {
  std::set<std::string> keys;
  for (const SearchAxis& axis : question.axes) {
    if (!keys.insert(axis.key).second) {
      return Status::invalid_argument("--set-range names a field twice:", axis.key);
    }
  }
  if (keys.empty()) {
    return Status::invalid_argument("there is nothing to tune: give --set-range section.key=a,b,c");
  }
  if (question.strategy != TuneStrategy::kGrid) {
    return drawn_trials(question);
  }
  const double combinations = num_combinations(question.axes, question.grid_points);
  if (combinations > static_cast<double>(kMostTrials)) {
    return Status::invalid_argument(
        fmt::format("a grid of these ranges has more than {} combinations; take fewer values, or --strategy random; combinations:",
                    kMostTrials),
        fmt::format("{:.0f}", combinations));
  }
  auto trials = shuffled(all_combinations(question.axes, question.grid_points), question.seed);
  if (question.num_trials > 0 && static_cast<int64_t>(trials.size()) > question.num_trials) {
    trials.resize(static_cast<size_t>(question.num_trials));
  }
  return trials;
}

std::vector<Rung> make_rungs(TuneStrategy strategy, int64_t num_trials) {
  if (strategy != TuneStrategy::kHalving) {
    return {{.share = 1, .num_trials = num_trials}};
  }
  std::vector<Rung> rungs;
  for (int64_t left = num_trials; left > 0; left /= kTuneEta) {
    rungs.push_back({.share = 1, .num_trials = left});
  }
  for (size_t i = rungs.size(); i > 1; --i) {
    rungs[i - 2].share = rungs[i - 1].share / static_cast<double>(kTuneEta);
  }
  return rungs;
}

int64_t rung_step(const Rung& rung, int64_t full_steps) {
  if (rung.share >= 1) {
    return full_steps;
  }
  return std::clamp<int64_t>(std::llround(rung.share * static_cast<double>(full_steps)), 1, full_steps);
}

std::optional<std::vector<int64_t>> trials_of_rung(const std::vector<Rung>& rungs, int64_t num_trials,
                                                   const std::vector<StageResult>& results, int64_t rung) {
  std::vector<int64_t> trials(static_cast<size_t>(num_trials));
  std::iota(trials.begin(), trials.end(), 0);
  const ResultIndex index(results);
  for (int64_t below = 0; below < rung; ++below) {
    std::vector<std::pair<double, int64_t>> scored;
    for (const int64_t trial : trials) {
      const StageResult* result = index.find({trial, below});
      if (result == nullptr) {
        return std::nullopt;
      }
      if (result->outcome == StageOutcome::kScored) {
        scored.emplace_back(result->loss, trial);
      }
    }
    std::sort(scored.begin(), scored.end());
    scored.resize(std::min(scored.size(), static_cast<size_t>(rungs[static_cast<size_t>(below) + 1].num_trials)));
    trials.clear();
    for (const auto& [loss, trial] : scored) {
      trials.push_back(trial);
    }
  }
  return trials;
}

std::vector<Stage> ready_stages(const std::vector<Rung>& rungs, int64_t num_trials, const std::vector<StageResult>& results) {
  const ResultIndex index(results);
  for (int64_t rung = 0; rung < static_cast<int64_t>(rungs.size()); ++rung) {
    const auto trials = trials_of_rung(rungs, num_trials, results, rung);
    if (!trials.has_value()) {
      return {};
    }
    std::vector<Stage> ready;
    for (const int64_t trial : *trials) {
      if (index.find({trial, rung}) == nullptr) {
        ready.push_back({trial, rung});
      }
    }
    if (!ready.empty()) {
      return ready;
    }
  }
  return {};
}

std::vector<int64_t> ended_trials(const std::vector<Rung>& rungs, int64_t num_trials, const std::vector<StageResult>& results) {
  std::vector<int64_t> next_rung(static_cast<size_t>(num_trials), 0);
  std::vector<bool> has_ended(static_cast<size_t>(num_trials), false);
  for (const StageResult& result : results) {
    const auto trial = static_cast<size_t>(result.stage.trial);
    next_rung[trial] = std::max(next_rung[trial], result.stage.rung + 1);
    has_ended[trial] = has_ended[trial] || result.outcome != StageOutcome::kScored;
  }
  for (int64_t rung = 1; rung < static_cast<int64_t>(rungs.size()); ++rung) {
    const auto chosen = trials_of_rung(rungs, num_trials, results, rung);
    if (!chosen.has_value()) {
      break;
    }
    const std::set<int64_t> is_chosen(chosen->begin(), chosen->end());
    for (int64_t trial = 0; trial < num_trials; ++trial) {
      const auto place = static_cast<size_t>(trial);
      has_ended[place] = has_ended[place] || (next_rung[place] == rung && !is_chosen.contains(trial));
    }
  }
  std::vector<int64_t> ended;
  for (int64_t trial = 0; trial < num_trials; ++trial) {
    const auto place = static_cast<size_t>(trial);
    if (has_ended[place] || next_rung[place] == static_cast<int64_t>(rungs.size())) {
      ended.push_back(trial);
    }
  }
  return ended;
}

std::optional<size_t> best_result(const std::vector<StageResult>& results) {
  std::optional<size_t> best;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].outcome != StageOutcome::kScored) {
      continue;
    }
    const auto rank = [&](size_t index) { return std::tuple(-results[index].stage.rung, results[index].loss, results[index].stage.trial); };
    best = !best.has_value() || rank(i) < rank(*best) ? i : best;
  }
  return best;
}

double affordable_length(const LengthQuestion& question) {
  DARKROOM_CHECK(!question.seconds_per_unit.empty() && question.num_workers > 0, "a length is asked of no trial or no worker");
  const double sum = std::accumulate(question.seconds_per_unit.begin(), question.seconds_per_unit.end(), 0.0);
  const double mean = sum / static_cast<double>(question.seconds_per_unit.size());
  double starts = 0, seconds_per_unit = 0, share_before = 0;
  for (const Rung& rung : question.rungs) {
    // A rung ends with its last worker: the next one's trials are not known before.
    const auto rounds = static_cast<double>((rung.num_trials + question.num_workers - 1) / question.num_workers);
    starts += rounds * question.start_seconds;
    seconds_per_unit += rounds * (rung.share - share_before) * mean;
    share_before = rung.share;
  }
  return std::max(0.0, (kBudgetShare * question.budget_seconds - starts) / seconds_per_unit);
}

bool fits_budget(double predicted_seconds, double remaining_seconds) {
  return remaining_seconds > 0 && predicted_seconds <= remaining_seconds;
}

}  // namespace darkroom
