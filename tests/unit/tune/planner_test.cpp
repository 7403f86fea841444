#include "darkroom/tune/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "darkroom/core/random.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrialQuestion question(TuneStrategy strategy, const std::vector<const char*>& axes, int64_t num_trials, uint64_t seed = 0) {
  TrialQuestion asked{.strategy = strategy, .axes = {}, .num_trials = num_trials, .seed = seed};
  for (const char* text : axes) {
    asked.axes.push_back(parse_search_axis(text).value());
  }
  return asked;
}

/// A trial's validation loss by its length: a better setting learns faster, and a few numbers of luck.
double simulated_loss(int64_t trial, int64_t rung, uint64_t seed) {
  const CounterRandom luck(seed, Purpose::kSelect, 0, "curve");
  const double floor = luck.uniform(static_cast<uint64_t>(trial));
  return floor + std::pow(0.5, static_cast<double>(rung)) * luck.uniform(1000 + static_cast<uint64_t>(8 * trial + rung));
}

StageResult scored(const Stage& stage, uint64_t seed) {
  return {.stage = stage, .outcome = StageOutcome::kScored, .loss = simulated_loss(stage.trial, stage.rung, seed)};
}

/// Runs all stages with so many workers, which end in an order drawn by `luck`.
std::vector<StageResult> run_all(const std::vector<Rung>& rungs, int64_t num_trials, size_t num_workers, uint64_t luck,
                                 const std::function<StageResult(const Stage&)>& run) {
  const CounterRandom random(luck, Purpose::kSelect, 0, "order");
  std::vector<StageResult> results;
  std::deque<Stage> running;
  for (uint64_t i = 0;; ++i) {
    for (const Stage& stage : ready_stages(rungs, num_trials, results)) {
      if (running.size() < num_workers && std::find(running.begin(), running.end(), stage) == running.end()) {
        running.push_back(stage);
      }
    }
    if (running.empty()) {
      return results;
    }
    const auto chosen = running.begin() + random.below(i, static_cast<uint32_t>(running.size()));
    results.push_back(run(*chosen));
    running.erase(chosen);
  }
}

std::set<Stage> stages_of(const std::vector<StageResult>& results) {
  std::set<Stage> stages;
  for (const StageResult& result : results) {
    stages.insert(result.stage);
  }
  return stages;
}

/// The definition, done again by brute force: the best third of all trials that reached a rung goes on.
std::set<Stage> halving_by_definition(int64_t num_trials, uint64_t seed) {
  std::set<Stage> stages;
  std::vector<int64_t> trials;
  for (int64_t trial = 0; trial < num_trials; ++trial) {
    trials.push_back(trial);
  }
  for (int64_t rung = 0; !trials.empty(); ++rung) {
    std::vector<std::pair<double, int64_t>> order;
    for (const int64_t trial : trials) {
      stages.insert({trial, rung});
      order.emplace_back(simulated_loss(trial, rung, seed), trial);
    }
    std::sort(order.begin(), order.end());
    order.resize(order.size() / 3);
    trials.clear();
    for (const auto& [loss, trial] : order) {
      trials.push_back(trial);
    }
  }
  return stages;
}

TEST(planner, a_grid_has_every_combination_once_in_an_order_of_the_seed) {
  const auto asked = question(TuneStrategy::kGrid, {"a.b=1,2,3", "c.d=x,y", "e.f=0..1"}, 0);
  const auto trials = draw_trials(asked).value();
  EXPECT_EQ(trials.size(), 18U);
  EXPECT_EQ(std::set<TrialSettings>(trials.begin(), trials.end()).size(), 18U);
  EXPECT_EQ(draw_trials(asked).value(), trials);
  auto other = asked;
  other.seed = 1;
  EXPECT_NE(draw_trials(other).value(), trials);
  other.num_trials = 5;
  const auto first = draw_trials(other).value();
  other.num_trials = 0;
  const auto all = draw_trials(other).value();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_EQ(first.size(), 5U);
}

TEST(planner, refuses_grids_that_nobody_can_run_and_fields_that_come_twice) {
  const auto large = draw_trials(question(TuneStrategy::kGrid, {"a.a=1..9:int", "b.b=1..99:int", "c.c=1..99:int"}, 3));
  EXPECT_TRUE(large.is_ok());  // Three points each.
  auto fine = question(TuneStrategy::kGrid, {"a.a=1..99:int", "b.b=1..99:int", "c.c=1..99:int"}, 3);
  fine.grid_points = 99;
  const auto refused = draw_trials(fine);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("970299"));
  EXPECT_THAT(draw_trials(question(TuneStrategy::kRandom, {"a.a=1,2", "a.a=3,4"}, 3)).status().message(), HasSubstr("a.a"));
  EXPECT_FALSE(draw_trials(question(TuneStrategy::kRandom, {}, 3)).is_ok());
}

TEST(planner, drawn_trials_begin_with_the_recipe_and_cover_every_axis_evenly) {
  for (const uint64_t seed : {0, 1, 7}) {
    const auto trials = draw_trials(question(TuneStrategy::kHalving, {"a.lr=1e-5..1e-2:log", "b.batch=8,16,32"}, 28, seed)).value();
    ASSERT_EQ(trials.size(), 28U);
    EXPECT_THAT(trials[0], IsEmpty());
    std::set<int64_t> parts;
    std::map<std::string, int> batches;
    for (size_t i = 1; i < trials.size(); ++i) {
      const double share = (std::log10(std::stod(trials[i][0].second)) + 5) / 3;
      parts.insert(static_cast<int64_t>(std::floor(share * 27)));
      batches[trials[i][1].second] += 1;
    }
    EXPECT_GE(parts.size(), 25U);  // Values are rounded to three digits: one at an edge may fall into the neighbour's part.
    EXPECT_THAT(batches, ElementsAre(std::pair("16", 9), std::pair("32", 9), std::pair("8", 9)));
  }
}

TEST(planner, drawn_trials_are_never_alike_nor_the_recipe_again) {
  auto asked = question(TuneStrategy::kRandom, {"a.b=1,2", "c.d=x,y,z"}, 100);
  asked.base = {{"a.b", "2"}, {"c.d", "x"}};
  const auto trials = draw_trials(asked).value();
  EXPECT_EQ(trials.size(), 6U);  // The recipe and the five others.
  EXPECT_EQ(std::set<TrialSettings>(trials.begin(), trials.end()).count(asked.base), 0U);
  asked.num_trials = 1;
  EXPECT_THAT(draw_trials(asked).value(), ElementsAre(IsEmpty()));
  asked.num_trials = 4;
  const auto few = draw_trials(asked).value();
  EXPECT_EQ(std::set<TrialSettings>(few.begin(), few.end()).size(), few.size());
}

TEST(planner, rungs_end_with_the_full_length) {
  EXPECT_THAT(make_rungs(TuneStrategy::kRandom, 7), ElementsAre(Rung{1, 7}));
  EXPECT_THAT(make_rungs(TuneStrategy::kGrid, 1), ElementsAre(Rung{1, 1}));
  EXPECT_THAT(make_rungs(TuneStrategy::kHalving, 1), ElementsAre(Rung{1, 1}));
  EXPECT_THAT(make_rungs(TuneStrategy::kHalving, 2), ElementsAre(Rung{1, 2}));
  EXPECT_THAT(make_rungs(TuneStrategy::kHalving, 3), ElementsAre(Rung{1.0 / 3, 3}, Rung{1, 1}));
  EXPECT_THAT(make_rungs(TuneStrategy::kHalving, 10), ElementsAre(Rung{1.0 / 9, 10}, Rung{1.0 / 3, 3}, Rung{1, 1}));
  EXPECT_EQ(rung_step({1.0 / 9, 10}, 90), 10);
  EXPECT_EQ(rung_step({1.0 / 9, 10}, 2), 1);
  EXPECT_EQ(rung_step({1, 1}, 2), 2);
}

TEST(planner, halving_runs_what_its_definition_says) {
  for (const int64_t num_trials : {1, 2, 3, 8, 9, 10, 27, 31}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto rungs = make_rungs(TuneStrategy::kHalving, num_trials);
      const auto results = run_all(rungs, num_trials, 1, 0, [=](const Stage& stage) { return scored(stage, seed); });
      EXPECT_EQ(stages_of(results), halving_by_definition(num_trials, seed)) << num_trials << " trials, seed " << seed;
    }
  }
}

TEST(planner, decides_the_same_for_any_number_of_workers_and_any_order) {
  const auto rungs = make_rungs(TuneStrategy::kHalving, 27);
  const auto one = run_all(rungs, 27, 1, 0, [](const Stage& stage) { return scored(stage, 5); });
  for (const size_t num_workers : {2, 3, 7, 64}) {  // The last: more than there are trials.
    for (uint64_t luck = 0; luck < 10; ++luck) {
      const auto many = run_all(rungs, 27, num_workers, luck, [](const Stage& stage) { return scored(stage, 5); });
      EXPECT_EQ(stages_of(many), stages_of(one));
      EXPECT_EQ(many[*best_result(many)].stage, one[*best_result(one)].stage);
    }
  }
}

TEST(planner, failed_trials_cost_themselves) {
  const auto rungs = make_rungs(TuneStrategy::kHalving, 9);
  const auto run = [](const Stage& stage) {
    StageResult result = scored(stage, 2);
    result.outcome = stage.trial % 2 == 0 ? StageOutcome::kDiverged : stage.trial == 1 ? StageOutcome::kFailed : StageOutcome::kScored;
    return result;
  };
  const auto results = run_all(rungs, 9, 2, 3, run);
  std::set<int64_t> gone_on;
  for (const Stage& stage : stages_of(results)) {
    if (stage.rung > 0) {
      gone_on.insert(stage.trial);
    }
  }
  EXPECT_THAT(gone_on, ElementsAre(3, 5, 7));
  EXPECT_EQ(results[*best_result(results)].stage.rung, 2);
}

TEST(planner, where_all_fail_nothing_goes_on_and_nothing_is_best) {
  const auto rungs = make_rungs(TuneStrategy::kHalving, 9);
  const auto results =
      run_all(rungs, 9, 1, 0, [](const Stage& stage) { return StageResult{.stage = stage, .outcome = StageOutcome::kFailed}; });
  EXPECT_EQ(results.size(), 9U);
  EXPECT_FALSE(best_result(results).has_value());
  EXPECT_FALSE(best_result({}).has_value());
}

TEST(planner, a_rung_is_not_decided_before_it_is_whole) {
  const auto rungs = make_rungs(TuneStrategy::kHalving, 3);
  std::vector<StageResult> results = {{.stage = {0, 0}, .loss = 2}, {.stage = {2, 0}, .loss = 1}};
  EXPECT_FALSE(trials_of_rung(rungs, 3, results, 1).has_value());
  EXPECT_THAT(ready_stages(rungs, 3, results), ElementsAre(Stage{1, 0}));
  results.push_back({.stage = {1, 0}, .loss = 1});
  EXPECT_THAT(*trials_of_rung(rungs, 3, results, 1), ElementsAre(1));  // Equal losses: the lower number.
  EXPECT_THAT(ready_stages(rungs, 3, results), ElementsAre(Stage{1, 1}));
}

// The definition, trial by trial, at every moment of a search.
TEST(planner, trials_that_run_no_further_are_those_that_nothing_will_choose) {
  const auto rungs = make_rungs(TuneStrategy::kHalving, 10);
  const auto num_rungs = static_cast<int64_t>(rungs.size());
  const auto run = [](const Stage& stage) {
    StageResult result = scored(stage, 4);
    result.outcome = stage.trial == 6 ? StageOutcome::kDiverged : StageOutcome::kScored;
    return result;
  };
  const auto all = run_all(rungs, 10, 3, 1, run);
  for (size_t num_results = 0; num_results <= all.size(); ++num_results) {
    const std::vector<StageResult> results(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num_results));
    std::vector<int64_t> want;
    for (int64_t trial = 0; trial < 10; ++trial) {
      int64_t next = 0;
      bool is_out = false;
      for (const StageResult& result : results) {
        next = result.stage.trial == trial ? std::max(next, result.stage.rung + 1) : next;
        is_out = is_out || (result.stage.trial == trial && result.outcome != StageOutcome::kScored);
      }
      const auto chosen = trials_of_rung(rungs, 10, results, std::min(next, num_rungs - 1));
      if (is_out || next == num_rungs || (chosen.has_value() && std::ranges::find(*chosen, trial) == chosen->end())) {
        want.push_back(trial);
      }
    }
    EXPECT_EQ(ended_trials(rungs, 10, results), want) << num_results << " results";
  }
  EXPECT_EQ(ended_trials(rungs, 10, all).size(), 10U);
}

// As many trials as there may be: what a rung costs is no square of their number.
TEST(planner, ten_thousand_trials_are_looked_through) {
  const auto rungs = make_rungs(TuneStrategy::kHalving, kMostTrials);
  std::vector<StageResult> results;
  for (int64_t trial = 0; trial < kMostTrials; ++trial) {
    results.push_back(scored({trial, 0}, 1));
  }
  EXPECT_EQ(ended_trials(rungs, kMostTrials, results).size(), static_cast<size_t>(kMostTrials - rungs[1].num_trials));
  EXPECT_EQ(ready_stages(rungs, kMostTrials, results).size(), static_cast<size_t>(rungs[1].num_trials));
}

TEST(planner, the_best_is_that_of_the_highest_rung) {
  const std::vector<StageResult> results = {
      {.stage = {0, 0}, .loss = 0.1}, {.stage = {1, 0}, .loss = 0.2}, {.stage = {1, 1}, .loss = 0.15}};
  EXPECT_EQ(best_result(results), std::optional<size_t>(2));
}

// The end of a search of that length, by letting the workers take one stage after the other.
double seconds_of_search(const LengthQuestion& asked, double length) {
  double seconds = 0, share = 0;
  for (const Rung& rung : asked.rungs) {
    std::vector<double> workers(static_cast<size_t>(asked.num_workers), 0.0);
    for (int64_t trial = 0; trial < rung.num_trials; ++trial) {
      auto& first = *std::min_element(workers.begin(), workers.end());
      first += asked.start_seconds + (rung.share - share) * length * asked.seconds_per_unit[static_cast<size_t>(trial)];
    }
    seconds += *std::max_element(workers.begin(), workers.end());
    share = rung.share;
  }
  return seconds;
}

TEST(planner, a_length_uses_the_budgets_share_and_no_more) {
  for (const int64_t num_trials : {1, 2, 9, 27}) {
    for (const int64_t num_workers : {1, 2, 5, 40}) {
      for (const auto strategy : {TuneStrategy::kRandom, TuneStrategy::kHalving}) {
        const LengthQuestion asked{.rungs = make_rungs(strategy, num_trials),
                                   .seconds_per_unit = std::vector<double>(static_cast<size_t>(num_trials), 0.01),
                                   .start_seconds = 2,
                                   .budget_seconds = 600,
                                   .num_workers = num_workers};
        EXPECT_NEAR(seconds_of_search(asked, affordable_length(asked)), kBudgetShare * 600, 1e-6) << num_trials << " " << num_workers;
      }
    }
  }
}

TEST(planner, a_budget_that_holds_no_start_has_no_length) {
  LengthQuestion asked{.rungs = make_rungs(TuneStrategy::kRandom, 9), .seconds_per_unit = std::vector<double>(9, 1.0), .start_seconds = 2};
  for (const double budget : {0.0, -5.0, 1.0, 20.0}) {
    asked.budget_seconds = budget;
    EXPECT_EQ(affordable_length(asked), 0) << budget;
  }
  asked.budget_seconds = 21;
  EXPECT_GT(affordable_length(asked), 0);
}

TEST(planner, a_stage_begins_only_where_it_ends_within_the_budget) {
  EXPECT_TRUE(fits_budget(10, 10));
  EXPECT_FALSE(fits_budget(10.1, 10));
  EXPECT_TRUE(fits_budget(0, 0.1));
  EXPECT_FALSE(fits_budget(0, 0));
  EXPECT_FALSE(fits_budget(0, -1));
}

}  // namespace
}  // namespace darkroom
