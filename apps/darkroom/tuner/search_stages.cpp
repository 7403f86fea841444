#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "darkroom/core/log.h"
#include "darkroom/core/median.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/stream/progress.h"
#include "darkroom/train/run_files.h"
#include "search.h"
#include "tuner_report.h"

namespace darkroom {
namespace {

constexpr int64_t kValidationsOfTrial = 12;  // Besides those at the rungs.
constexpr int64_t kMostStops = 2;            // Of one stage by somebody else's signal.
constexpr int kSignalCode = 128;

bool is_stopped_code(int exit_code) { return exit_code == kSignalCode + SIGTERM || exit_code == kSignalCode + SIGINT; }

std::string reason_of(const ChildEnd& end, const std::string& words) {
  if (end.exit_code > kSignalCode) {
    const int number = end.exit_code - kSignalCode;
    return fmt::format("ended by signal {}{}", number, number == SIGKILL ? "; the machine may have run out of memory" : "");
  }
  return words.empty() ? fmt::format("ended with exit code {}", end.exit_code) : words;
}

}  // namespace

int64_t Search::step_of(const Stage& stage) const {
  return rung_step(plan().rungs[static_cast<size_t>(stage.rung)], plan().trials[static_cast<size_t>(stage.trial)].full_steps);
}

bool Search::is_running(const Stage& stage) const {
  return std::any_of(running_.begin(), running_.end(), [&](const Running& running) { return running.stage == stage; });
}

// Where its first step begins: behind the rung before, or behind the newest checkpoint of a start that was cut.
int64_t Search::steps_done(const Stage& stage) const {
  const int64_t before = stage.rung == 0 ? 0 : step_of({stage.trial, stage.rung - 1});
  const auto& unfinished = record().unfinished;
  if (std::none_of(unfinished.begin(), unfinished.end(), [&](const BegunStage& begun) { return begun.stage == stage; })) {
    return before;
  }
  const auto places = list_checkpoints(local_files(), join_path(trial_folder(options_.output, stage.trial), kRunCheckpointsFolder));
  int64_t newest = before;  // The trial itself tells what is wrong with a folder that cannot be listed.
  for (const CheckpointPlace& place : places.is_ok() ? *places : std::vector<CheckpointPlace>()) {
    newest = std::max(newest, place.step);
  }
  return std::min(newest, step_of(stage));
}

// By the speeds that were measured, and by how wrong they were for the stages that ended here; 0: nothing is known.
double Search::predicted_seconds(const Stage& stage) const {
  const PlannedTrial& trial = plan().trials[static_cast<size_t>(stage.trial)];
  const double rate = images_per_second(trial.batch);
  const double samples = static_cast<double>(step_of(stage) - steps_done(stage)) * static_cast<double>(trial.batch);
  if (rate <= 0) {
    return samples * seconds_per_sample();
  }
  const double factor = foreseen_seconds_ > 0 ? std::max(1.0, actual_seconds_ / foreseen_seconds_) : 1;
  return factor * (start_seconds() + samples / rate);
}

// Of the first stages that have ended, starts and all; 0: none has.
double Search::seconds_per_sample() const {
  std::vector<double> seconds;
  for (const StageEnd& end : record().ends) {
    if (end.result.stage.rung == 0 && end.result.outcome == StageOutcome::kScored) {
      seconds.push_back(end.seconds / static_cast<double>(end.step * plan().trials[static_cast<size_t>(end.result.stage.trial)].batch));
    }
  }
  return seconds.empty() ? 0 : median(seconds);
}

Status Search::start_stage(const Stage& stage, double predicted) {
  const PlannedTrial& trial = plan().trials[static_cast<size_t>(stage.trial)];
  std::vector<std::string> settings = {
      fmt::format("schedule.max_steps={}", trial.full_steps),
      fmt::format("validation.every_steps={}", std::max<int64_t>(1, trial.full_steps / kValidationsOfTrial))};
  for (const auto& [key, value] : trial.settings) {
    settings.push_back(key + "=" + value);
  }
  const std::string folder = trial_folder(options_.output, stage.trial);
  DARKROOM_RETURN_IF_ERROR(await_dead_trial(folder));
  DARKROOM_RETURN_IF_ERROR(ledger_->add_begin({.stage = stage, .num_sharing = options_.num_sharing()}, spent()));
  DARKROOM_ASSIGN_OR_RETURN(auto process,
                            TrialProcess::start(options_.launcher, train_flags(folder, step_of(stage), settings), folder + ".log"));
  running_.push_back({stage, predicted, std::move(process)});
  return {};
}

Status Search::start_ready() {
  for (const Stage& stage : ready_stages(plan().rungs, num_trials(), record().results())) {
    const PlannedTrial& trial = plan().trials[static_cast<size_t>(stage.trial)];
    if (!trial.refusal.empty()) {
      DARKROOM_RETURN_IF_ERROR(refuse(stage, trial.refusal));
      continue;
    }
    if (is_running(stage)) {
      continue;
    }
    if (static_cast<int64_t>(running_.size()) >= options_.num_workers || is_out_of_budget_) {
      return {};
    }
    const double predicted = predicted_seconds(stage);
    if (!fits_budget(predicted, remaining())) {
      is_out_of_budget_ = true;
      log_info("{} is not begun: it takes about {:.0f} s, and {:.0f} s of the budget are left", trial_name(stage.trial), predicted,
               std::max(0.0, remaining()));
      return {};
    }
    DARKROOM_RETURN_IF_ERROR(start_stage(stage, predicted));
  }
  return {};
}

Status Search::refuse(const Stage& stage, const std::string& reason) {
  StageEnd end{.result = {.stage = stage, .outcome = StageOutcome::kFailed}};
  end.reason = "refused: " + reason;
  DARKROOM_RETURN_IF_ERROR(ledger_->add_end(end, spent()));
  tell(end);
  return {};
}

void Search::tell(const StageEnd& end) const {
  const Stage& stage = end.result.stage;
  const std::string settings = settings_text(plan().trials[static_cast<size_t>(stage.trial)].settings);
  if (end.result.outcome == StageOutcome::kScored) {
    log_info("{} at rung {} of {}, step {}: validation loss {:.5f} in {:.1f} s ({})", trial_name(stage.trial), stage.rung + 1,
             plan().rungs.size(), end.step, end.result.loss, end.seconds, settings);
  } else {
    log_warning("{} {}: {} ({})", trial_name(stage.trial), end.result.outcome == StageOutcome::kDiverged ? "diverged" : "failed",
                end.reason, settings);
  }
}

// On a terminal.
void Search::show_trials() const {
  if (!stderr_is_terminal()) {
    return;
  }
  const std::vector<StageResult> results = record().results();
  const size_t num_ended = ended_trials(plan().rungs, num_trials(), results).size();
  const auto best = best_result(results);
  const std::string bar = terminal_bar(static_cast<double>(num_ended) / static_cast<double>(num_trials()));
  const std::string loss = best ? fmt::format(", best loss {:.5f} ({})", results[*best].loss, trial_name(results[*best].stage.trial)) : "";
  show_progress(fmt::format("tune {}{}/{} trials, {} running{}, {} of the budget left", bar, num_ended, num_trials(), running_.size(), loss,
                            clock_text(remaining())));
}

Result<StageEnd> Search::judge(const Running& running, const ChildEnd& end) const {
  const Stage& stage = running.stage;
  const std::string metrics = join_path(trial_folder(options_.output, stage.trial), kRunMetricsFile);
  DARKROOM_ASSIGN_OR_RETURN(const TrialCurve curve, read_trial_curve(local_files(), metrics));
  const auto before = stage.rung == 0 ? std::nullopt : curve.at(step_of({stage.trial, stage.rung - 1}));
  StageEnd judged{.result = {.stage = stage, .outcome = StageOutcome::kFailed},
                  .step = curve.last_step,
                  .peak_bytes = end.peak_bytes,
                  .num_sharing = options_.num_sharing()};
  // Earlier starts of this stage are in the run's own wall time, the program's loading is in the process's.
  judged.seconds = std::max(running.process->seconds(), curve.seconds - (before ? before->seconds : 0));
  if (end.exit_code != 0) {
    judged.reason = reason_of(end, running.process->last_words());
    const bool is_diverged = judged.reason.find("not finite") != std::string::npos;
    judged.result.outcome = is_diverged ? StageOutcome::kDiverged : StageOutcome::kFailed;
    return judged;
  }
  const auto point = curve.at(step_of(stage));
  if (!point.has_value()) {
    judged.reason = fmt::format("its metrics have no validation of step {}", step_of(stage));
  } else if (!std::isfinite(point->loss)) {
    judged.result.outcome = StageOutcome::kDiverged;
    judged.reason = fmt::format("the validation loss of step {} is not finite", point->step);
  } else {
    judged.result = {.stage = stage, .outcome = StageOutcome::kScored, .loss = point->loss};
  }
  return judged;
}

Status Search::take_end(const Running& running, const ChildEnd& end) {
  if (is_stopped_code(end.exit_code)) {
    // Asked, or by somebody who stops both: it goes on later. Somebody else's signals cost the trial at last.
    if (running.process->was_asked() || stop_.stop_requested() || ++num_stops_[running.stage] <= kMostStops) {
      return {};
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const StageEnd judged, judge(running, end));
  actual_seconds_ += running.predicted > 0 ? running.process->seconds() : 0;
  foreseen_seconds_ += running.predicted;
  DARKROOM_RETURN_IF_ERROR(ledger_->add_end(judged, spent()));
  tell(judged);
  return prune_checkpoints();
}

Status Search::collect() {
  for (size_t i = 0; i < running_.size();) {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<ChildEnd> end, running_[i].process->poll_end());
    if (!end.has_value()) {
      ++i;
      continue;
    }
    const Running ended = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    DARKROOM_RETURN_IF_ERROR(take_end(ended, *end));
  }
  return {};
}

// Checkpoints stay of trials that may go on, and of the best one.
Status Search::prune_checkpoints() {
  const std::vector<StageResult> results = record().results();
  const auto best = best_result(results);
  for (const int64_t trial : ended_trials(plan().rungs, num_trials(), results)) {
    const bool is_best = best.has_value() && results[*best].stage.trial == trial;
    if (!is_best && !pruned_.contains(trial)) {
      DARKROOM_RETURN_IF_ERROR(local_files().remove_tree(join_path(trial_folder(options_.output, trial), kRunCheckpointsFolder)));
      pruned_.insert(trial);
    }
  }
  return {};
}

// Each ends with a checkpoint after the step at hand.
Status Search::stop_running() {
  for (const Running& running : running_) {
    running.process->ask_to_stop();
  }
  while (!running_.empty()) {
    std::vector<const TrialProcess*> processes;
    for (const Running& running : running_) {
      processes.push_back(running.process.get());
    }
    wait_for_any(processes);
    DARKROOM_RETURN_IF_ERROR(collect());
  }
  return {};
}

Status Search::run_stages() {
  while (true) {
    DARKROOM_RETURN_IF_ERROR(collect());
    if (stop_.stop_requested()) {
      DARKROOM_RETURN_IF_ERROR(stop_running());
      return Status::cancelled("stopped on request; the same command goes on. Stages that have ended:", record().ends.size());
    }
    if (remaining() <= 0 && !running_.empty()) {
      log_info("the budget is spent: {} trials end with a checkpoint", running_.size());
      is_out_of_budget_ = true;
      DARKROOM_RETURN_IF_ERROR(stop_running());
    }
    DARKROOM_RETURN_IF_ERROR(start_ready());
    if (running_.empty()) {
      if (is_out_of_budget_ || ready_stages(plan().rungs, num_trials(), record().results()).empty()) {
        return {};
      }
      continue;  // Refused ones were all that was ready.
    }
    std::vector<const TrialProcess*> processes;
    for (const Running& running : running_) {
      processes.push_back(running.process.get());
    }
    show_trials();
    wait_for_any(processes);
  }
}

}  // namespace darkroom
