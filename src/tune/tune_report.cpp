#include "darkroom/tune/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "axis_study.h"
#include "darkroom/core/check.h"
#include "darkroom/core/median.h"

namespace darkroom {
namespace {

constexpr double kSecondsPerHour = 3600;

// Of a time that trials of one machine shared.
double machine_hours(double seconds, int64_t num_sharing, const ReportInputs& inputs) {
  return seconds / kSecondsPerHour / static_cast<double>(num_sharing > 0 ? num_sharing : inputs.num_sharing);
}

// The ends of one trial's stages, in the order of the rungs.
std::vector<StageEnd> ends_of(const TuneRecord& record, int64_t trial) {
  std::vector<StageEnd> ends;
  std::copy_if(record.ends.begin(), record.ends.end(), std::back_inserter(ends),
               [=](const StageEnd& end) { return end.result.stage.trial == trial; });
  std::sort(ends.begin(), ends.end(), [](const StageEnd& a, const StageEnd& b) { return a.result.stage < b.result.stage; });
  return ends;
}

std::string state_of(const TuneRecord& record, int64_t trial, const TrialReport& report) {
  const auto ends = ends_of(record, trial);
  if (!ends.empty() && ends.back().result.outcome != StageOutcome::kScored) {
    return ends.back().result.outcome == StageOutcome::kDiverged ? "diverged" : "failed";
  }
  const int64_t next = report.rung + 1;
  if (next == static_cast<int64_t>(record.plan->rungs.size())) {
    return "finished";
  }
  const bool is_begun =
      std::any_of(record.unfinished.begin(), record.unfinished.end(), [=](const BegunStage& begun) { return begun.stage.trial == trial; });
  const auto chosen = trials_of_rung(record.plan->rungs, static_cast<int64_t>(record.plan->trials.size()), record.results(), next);
  const bool goes_on = !chosen.has_value() || std::find(chosen->begin(), chosen->end(), trial) != chosen->end();
  if (!goes_on) {
    return fmt::format("left at rung {}", report.rung + 1);
  }
  return is_begun || report.rung >= 0 ? "cut by the budget" : "not begun";
}

// What a stage that was cut has cost until then: it has no end that tells.
void add_unfinished(const BegunStage& begun, const TunePlan& plan, const ReportInputs& inputs, TrialReport& report) {
  const TrialCurve& curve = inputs.curves[static_cast<size_t>(begun.stage.trial)];
  const auto before =
      begun.stage.rung == 0 ? std::nullopt : curve.at(rung_step(plan.rungs[static_cast<size_t>(begun.stage.rung) - 1], report.full_steps));
  const double seconds = std::max(0.0, curve.seconds - (before ? before->seconds : 0));
  report.step = std::max(report.step, curve.last_step);
  report.seconds += seconds;
  report.machine_hours += machine_hours(seconds, begun.num_sharing, inputs);
}

TrialReport report_trial(const TuneRecord& record, const ReportInputs& inputs, int64_t trial) {
  const PlannedTrial& planned = record.plan->trials[static_cast<size_t>(trial)];
  const TrialCurve& curve = inputs.curves[static_cast<size_t>(trial)];
  TrialReport report{.name = trial_name(trial), .settings = planned.settings, .batch = planned.batch, .full_steps = planned.full_steps};
  for (const StageEnd& end : ends_of(record, trial)) {
    report.seconds += end.seconds;
    report.machine_hours += machine_hours(end.seconds, end.num_sharing, inputs);
    report.peak_bytes = std::max(report.peak_bytes, end.peak_bytes);
    report.step = std::max(report.step, end.step);
    report.reason = end.reason;
    if (end.result.outcome == StageOutcome::kScored) {
      report.rung = end.result.stage.rung;
      report.loss = end.result.loss;
    }
  }
  for (const BegunStage& begun : record.unfinished) {
    if (begun.stage.trial == trial) {
      add_unfinished(begun, *record.plan, inputs, report);
    }
  }
  report.samples = report.step * report.batch;
  report.images_per_second = curve.images_per_second;
  report.dollars = report.machine_hours * inputs.price.dollars_per_hour;
  report.kilowatt_hours = report.machine_hours * inputs.price.watts / 1000;
  report.curve = curve.validations;
  report.state = state_of(record, trial, report);
  return report;
}

std::vector<BatchSpeed> report_speeds(const TuneRecord& record, const std::vector<TrialReport>& trials) {
  std::vector<BatchSpeed> speeds;
  const auto add = [&](int64_t batch, const std::string& measured, double images_per_second, int64_t peak_bytes) {
    const double steps = images_per_second / static_cast<double>(batch);
    speeds.push_back({.batch = batch,
                      .measured = measured,
                      .steps_per_second = steps,
                      .images_per_second = images_per_second,
                      .peak_bytes = peak_bytes});
  };
  for (const SpeedRecord& speed : record.speeds) {
    add(speed.batch, "alone, before the trials", speed.images_per_second(), 0);
  }
  std::map<int64_t, std::vector<double>> rates;
  std::map<int64_t, int64_t> peaks;
  for (const TrialReport& trial : trials) {
    if (trial.images_per_second > 0) {
      rates[trial.batch].push_back(trial.images_per_second);
      peaks[trial.batch] = std::max(peaks[trial.batch], trial.peak_bytes);
    }
  }
  for (const auto& [batch, of_batch] : rates) {
    add(batch, fmt::format("in {} trial{}, the median", of_batch.size(), of_batch.size() == 1 ? "" : "s"), median(of_batch), peaks[batch]);
  }
  std::stable_sort(speeds.begin(), speeds.end(), [](const BatchSpeed& a, const BatchSpeed& b) { return a.batch < b.batch; });
  return speeds;
}

std::vector<CostPoint> report_costs(const TuneRecord& record, const ReportInputs& inputs) {
  std::vector<CostPoint> costs;
  for (int64_t trial = 0; trial < static_cast<int64_t>(record.plan->trials.size()); ++trial) {
    double hours = 0;
    for (const StageEnd& end : ends_of(record, trial)) {
      hours += machine_hours(end.seconds, end.num_sharing, inputs);
      if (end.result.outcome == StageOutcome::kScored) {
        costs.push_back({.trial = trial,
                         .rung = end.result.stage.rung,
                         .machine_hours = hours,
                         .dollars = hours * inputs.price.dollars_per_hour,
                         .loss = end.result.loss});
      }
    }
  }
  std::sort(costs.begin(), costs.end(),
            [](const CostPoint& a, const CostPoint& b) { return std::tie(a.machine_hours, a.loss) < std::tie(b.machine_hours, b.loss); });
  const CostPoint* last = nullptr;
  for (CostPoint& point : costs) {
    point.is_on_front = last == nullptr || point.loss < last->loss;
    last = point.is_on_front ? &point : last;
  }
  return costs;
}

std::vector<StudiedTrial> studied_trials(const TuneRecord& record, const ReportInputs& inputs) {
  std::vector<StudiedTrial> studied;
  for (const StageEnd& end : record.ends) {
    const StageResult& result = end.result;
    if (result.stage.rung == 0 && result.outcome == StageOutcome::kScored) {
      const TrialSettings& settings = record.plan->trials[static_cast<size_t>(result.stage.trial)].settings;
      studied.push_back({settings.empty() ? inputs.base : settings, result.loss});
    }
  }
  return studied;
}

std::optional<double> loss_at(const TuneRecord& record, const Stage& stage) {
  for (const StageEnd& end : record.ends) {
    if (end.result.stage == stage && end.result.outcome == StageOutcome::kScored) {
      return end.result.loss;
    }
  }
  return std::nullopt;
}

// The recipe as it is beside the best trial, where both stopped.
void compare_with_base(const TuneRecord& record, TuneReport& report) {
  for (int64_t trial = 0; trial < static_cast<int64_t>(report.trials.size()); ++trial) {
    const bool is_base = report.trials[static_cast<size_t>(trial)].settings.empty();
    for (int64_t rung = 0; is_base && report.best && rung < static_cast<int64_t>(report.rungs.size()); ++rung) {
      const auto base = loss_at(record, {trial, rung});
      const auto best = loss_at(record, {*report.best, rung});
      if (base && best) {
        report.base_loss = base;
        report.best_loss_there = best;
        report.base_rung = rung;
      }
    }
  }
}

void add_notes(const TuneRecord& record, TuneReport& report) {
  const auto num_scored =
      std::count_if(report.trials.begin(), report.trials.end(), [](const TrialReport& trial) { return trial.loss.has_value(); });
  if (!report.is_complete) {
    report.notes.push_back(fmt::format(
        "The search is not complete: {} of {} trials have a score, and the best of them is the best so far. The same command with a larger "
        "--budget goes on.",
        num_scored, report.trials.size()));
  }
  if (report.best && report.trials[static_cast<size_t>(*report.best)].rung + 1 < static_cast<int64_t>(report.rungs.size())) {
    report.notes.push_back("No trial reached its full length: the best one was compared at a shorter one.");
  }
  if (record.plan->unit == "seconds") {
    report.notes.push_back(
        "Scores are losses after equal training time: each trial makes the steps that fit into it at the speed that was measured for its "
        "batch before the trials, so that a score does not depend on what else the machine does.");
  } else {
    report.notes.push_back("Scores are losses after equally many samples.");
  }
  report.notes.push_back(
      "Trials are shorter than a full run: a learning rate that wins a short run may be somewhat too high for a long one.");
}

}  // namespace

std::string trial_name(int64_t trial) { return fmt::format("trial-{:03}", trial); }

TuneReport make_tune_report(const TuneRecord& record, const ReportInputs& inputs) {
  DARKROOM_CHECK(record.plan.has_value() && inputs.curves.size() == record.plan->trials.size(), "a report wants a plan and its curves");
  const TunePlan& plan = *record.plan;
  TuneReport report{.head = record.head, .unit = plan.unit, .length = plan.length, .rungs = plan.rungs};
  for (int64_t trial = 0; trial < static_cast<int64_t>(plan.trials.size()); ++trial) {
    report.trials.push_back(report_trial(record, inputs, trial));
  }
  if (const auto best = best_result(record.results())) {
    report.best = record.ends[*best].result.stage.trial;
    report.trials[static_cast<size_t>(*report.best)].state = "best";
  }
  report.is_complete = ready_stages(plan.rungs, static_cast<int64_t>(plan.trials.size()), record.results()).empty();
  report.speeds = report_speeds(record, report.trials);
  report.axes = study_axes(inputs.axes, studied_trials(record, inputs));
  report.costs = report_costs(record, inputs);
  report.price = inputs.price;
  report.spent_seconds = record.spent_seconds;
  report.budget_seconds = inputs.budget_seconds;
  compare_with_base(record, report);
  add_notes(record, report);
  return report;
}

}  // namespace darkroom
