#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "darkroom/core/log.h"
#include "darkroom/core/median.h"
#include "darkroom/files/paths.h"
#include "darkroom/train/run_files.h"
#include "search.h"
#include "tuned_recipe.h"

namespace darkroom {
namespace {

constexpr int64_t kDefaultHalvingTrials = 27;
constexpr int64_t kDefaultRandomTrials = 9;
constexpr int64_t kSpeedSteps = 6;       // Of a run that measures a batch size; the first one does not count.
constexpr size_t kMostSpeeds = 4;        // Batch sizes that are measured; others take the nearest one's figures.
constexpr int64_t kFewestRungSteps = 5;  // Of fewer steps nothing is learned.

}  // namespace

TrialQuestion Search::question(int64_t num_trials) const {
  return {.strategy = options_.strategy,
          .axes = axes_,
          .base = own_settings(options_.recipe, axes_),
          .num_trials = num_trials,
          .grid_points = options_.grid_points,
          .seed = options_.seed};
}

bool Search::needs_speeds() const { return options_.num_samples == 0 || options_.score == TuneScore::kLossAtBudget; }

double Search::images_per_second(int64_t batch) const {
  const SpeedRecord* nearest = nullptr;
  const auto distance = [=](const SpeedRecord& speed) {
    return std::abs(std::log(static_cast<double>(speed.batch) / static_cast<double>(batch)));
  };
  for (const SpeedRecord& speed : record().speeds) {
    nearest = nearest == nullptr || distance(speed) < distance(*nearest) ? &speed : nearest;
  }
  return nearest == nullptr ? 0 : nearest->images_per_second();
}

double Search::start_seconds() const {
  std::vector<double> seconds;
  for (const SpeedRecord& speed : record().speeds) {
    seconds.push_back(speed.start_seconds);
  }
  return seconds.empty() ? 0 : median(seconds);
}

Result<std::optional<SpeedRecord>> Search::measure_speed(const SpeedClass& speed_class) {
  const auto [batch, micro] = speed_class;
  const std::string name = fmt::format("batch-{}-micro-{}", batch, micro);
  const std::string folder = in_folder(join_path("speed", name));
  DARKROOM_RETURN_IF_ERROR(await_dead_trial(folder));
  DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(folder));  // Of a start that was killed.
  DARKROOM_RETURN_IF_ERROR(local_files().create_folders(in_folder("speed")));
  const std::vector<std::string> settings = {fmt::format("batch.global={}", batch), fmt::format("batch.micro={}", micro),
                                             "runtime.log_every=1", "checkpoint.every_steps=0",
                                             fmt::format("validation.every_steps={}", kSpeedSteps)};
  DARKROOM_ASSIGN_OR_RETURN(const auto process,
                            TrialProcess::start(options_.launcher, train_flags(folder, kSpeedSteps, settings), folder + ".log"));
  std::optional<ChildEnd> end;
  while (!end.has_value()) {
    if (stop_.stop_requested() || remaining() <= 0) {
      return stop_.stop_requested() ? Result<std::optional<SpeedRecord>>(Status::cancelled("stopped on request before the first trial"))
                                    : std::optional<SpeedRecord>();
    }
    wait_for_any({process.get()});
    DARKROOM_ASSIGN_OR_RETURN(end, process->poll_end());
  }
  const double seconds = process->seconds();
  DARKROOM_ASSIGN_OR_RETURN(const TrialCurve curve, read_trial_curve(local_files(), join_path(folder, kRunMetricsFile)));
  DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(folder));
  if (end->exit_code != 0 || curve.images_per_second <= 0) {
    log_warning("the speed of batch {} cannot be measured: {}", batch, process->last_words());
    return std::optional<SpeedRecord>();
  }
  const double step_seconds = static_cast<double>(batch) / curve.images_per_second;
  return std::optional(SpeedRecord{.batch = batch,
                                   .micro = micro,
                                   .steps_per_second = 1 / step_seconds,
                                   .start_seconds = std::max(0.0, seconds - static_cast<double>(kSpeedSteps) * step_seconds)});
}

Status Search::measure_speeds(const std::vector<TrialSettings>& trials) {
  std::set<SpeedClass> distinct;
  for (const TrialSettings& settings : trials) {
    if (const auto recipe = recipe_with(options_.recipe, settings); recipe.is_ok()) {
      distinct.emplace(recipe->batch.global, recipe->batch.micro);
    }
  }
  const std::vector<SpeedClass> classes(distinct.begin(), distinct.end());
  const size_t count = std::min(classes.size(), kMostSpeeds);
  for (size_t i = 0; i < count; ++i) {
    const SpeedClass& chosen = classes[count == 1 ? 0 : i * (classes.size() - 1) / (count - 1)];
    const auto is_known = [&](const SpeedRecord& speed) { return SpeedClass(speed.batch, speed.micro) == chosen; };
    if (std::any_of(record().speeds.begin(), record().speeds.end(), is_known)) {
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<SpeedRecord> speed, measure_speed(chosen));
    if (speed.has_value()) {
      log_info("batch {}: {:.2f} steps/s, {:.1f} img/s, and {:.1f} s for a start", speed->batch, speed->steps_per_second,
               speed->images_per_second(), speed->start_seconds);
      DARKROOM_RETURN_IF_ERROR(ledger_->add_speed(*speed, spent()));
    }
  }
  return record().speeds.empty()
             ? Status::failed_precondition(
                   "no speed could be measured, because short runs fail or the budget is too short; see the logs in:", in_folder("speed"))
             : Status::ok();
}

// Of one whose trials, rungs and batches are known: what fits into the budget, and no more than the recipe's own length.
double Search::full_length(const TunePlan& plan) const {
  const Recipe& recipe = options_.recipe;
  const double own_samples = static_cast<double>(recipe.schedule.max_steps) * static_cast<double>(recipe.batch.global);
  const bool is_in_samples = options_.score == TuneScore::kLossAtSamples;
  const double own_rate = images_per_second(recipe.batch.global);
  if (options_.num_samples > 0) {
    return is_in_samples ? static_cast<double>(options_.num_samples) : static_cast<double>(options_.num_samples) / own_rate;
  }
  LengthQuestion question{.rungs = plan.rungs,
                          .seconds_per_unit = {},
                          .start_seconds = start_seconds(),
                          .budget_seconds = remaining(),
                          .num_workers = options_.num_workers};
  for (const PlannedTrial& trial : plan.trials) {
    if (trial.refusal.empty()) {
      question.seconds_per_unit.push_back(is_in_samples ? 1 / images_per_second(trial.batch) : 1);
    }
  }
  if (question.seconds_per_unit.empty()) {
    return own_samples;  // All were refused.
  }
  const double length = std::min(affordable_length(question), is_in_samples ? own_samples : own_samples / own_rate);
  return is_in_samples ? std::floor(length) : length;
}

void Search::set_steps(TunePlan& plan) const {
  for (PlannedTrial& trial : plan.trials) {
    if (trial.refusal.empty()) {
      const double samples = options_.score == TuneScore::kLossAtSamples ? plan.length : plan.length * images_per_second(trial.batch);
      trial.full_steps = std::max<int64_t>(1, std::llround(samples / static_cast<double>(trial.batch)));
    }
  }
}

bool Search::is_long_enough(const TunePlan& plan) const {
  return std::all_of(plan.trials.begin(), plan.trials.end(), [&](const PlannedTrial& trial) {
    return !trial.refusal.empty() || rung_step(plan.rungs[0], trial.full_steps) >= kFewestRungSteps;
  });
}

Result<TunePlan> Search::make_plan(int64_t num_trials) const {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<TrialSettings> trials, draw_trials(question(num_trials)));
  TunePlan plan{.unit = options_.score == TuneScore::kLossAtSamples ? "samples" : "seconds"};
  for (const TrialSettings& settings : trials) {
    const auto recipe = recipe_with(options_.recipe, settings);
    PlannedTrial& planned = plan.trials.emplace_back();
    planned.settings = settings;
    planned.batch = recipe.is_ok() ? recipe->batch.global : options_.recipe.batch.global;
    planned.refusal = recipe.is_ok() ? "" : recipe.status().message();
  }
  plan.rungs = make_rungs(options_.strategy, static_cast<int64_t>(plan.trials.size()));
  plan.length = full_length(plan);
  set_steps(plan);
  return plan;
}

Status Search::settle_plan() {
  int64_t count = options_.num_trials;
  if (count == 0) {
    count = options_.strategy == TuneStrategy::kHalving  ? kDefaultHalvingTrials
            : options_.strategy == TuneStrategy::kRandom ? kDefaultRandomTrials
                                                         : 0;
  }
  if (needs_speeds()) {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<TrialSettings> trials, draw_trials(question(count)));
    DARKROOM_RETURN_IF_ERROR(measure_speeds(trials));
  }
  DARKROOM_ASSIGN_OR_RETURN(TunePlan plan, make_plan(count));
  while (options_.num_trials == 0 && options_.num_samples == 0 && options_.strategy == TuneStrategy::kHalving && count > kTuneEta &&
         !is_long_enough(plan)) {
    count /= kTuneEta;
    DARKROOM_ASSIGN_OR_RETURN(plan, make_plan(count));
  }
  if (plan.length <= 0) {
    return Status::failed_precondition("the budget does not hold the starts of the trials; give more --budget, or fewer --trials:",
                                       fmt::format("{:.1f} minutes are left", remaining() / 60));
  }
  log_info("{} trials ({}), the longest of {:.0f} {}; {} are compared after {:.0f}", plan.trials.size(), strategy_name(options_.strategy),
           plan.length, plan.unit, plan.rungs[0].num_trials, plan.length * plan.rungs[0].share);
  return ledger_->add_plan(plan, spent());
}

}  // namespace darkroom
