#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/tune/trial_curve.h"
#include "darkroom/tune/trial_ledger.h"

namespace darkroom {

/// What a machine's hour takes.
struct TunePrice {
  std::string label = {};       ///< "p5.48xlarge, on demand: ..." or ""; for people.
  double dollars_per_hour = 0;  ///< 0: no price, so that costs are machine-hours.
  double watts = 0;             ///< 0: unknown, so that no energy is told.
};

/// What a trial came to.
struct TrialReport {
  std::string name = {};
  TrialSettings settings = {};
  std::string state = {};  ///< "best", "finished", "left at rung 1", "diverged", "failed", "cut by the budget", "not begun".
  int64_t batch = 0;
  int64_t full_steps = 0;
  int64_t rung = -1;                ///< The highest that it was scored at.
  std::optional<double> loss = {};  ///< There.
  int64_t step = 0;
  int64_t samples = 0;
  double seconds = 0;  ///< Wall time of its processes; of a stage that was cut, as far as its metrics tell.
  double images_per_second = 0;
  double machine_hours = 0;
  double dollars = 0;
  double kilowatt_hours = 0;
  int64_t peak_bytes = 0;
  std::string reason = {};  ///< Of one that was not scored.
  std::vector<CurvePoint> curve = {};
};

/// How fast steps of a batch size are.
struct BatchSpeed {
  int64_t batch = 0;
  std::string measured = {};  ///< "alone, before the trials", "in 5 trials".
  double steps_per_second = 0;
  double images_per_second = 0;
  int64_t peak_bytes = 0;
};

/// The losses of the trials whose value of a field lies in one place, at the rung that all of them reached.
struct AxisBin {
  std::string label = {};
  int64_t num_trials = 0;
  double best = 0;
  double median = 0;
};

/// What a field did to the loss at the first rung.
struct AxisStudy {
  std::string key = {};
  bool is_log = false;
  std::vector<std::pair<double, double>> points = {};  ///< (value, loss); of a field without numbers: (number of the value, loss).
  std::vector<AxisBin> bins = {};
  std::optional<double> rank_correlation = {};  ///< Spearman's, of value and loss; none for fields without numbers or with too few trials.
  double chance = 0;  ///< What |rank_correlation| stays below in 95 of 100 searches in which the field does nothing.
};

/// A length of training that was paid, and how good it was.
struct CostPoint {
  int64_t trial = 0;
  int64_t rung = 0;
  double machine_hours = 0;
  double dollars = 0;
  double loss = 0;
  bool is_on_front = false;  ///< Nothing costs no more and is better.
};

/// What a search found out. Thread safety: a value type.
struct TuneReport {
  nlohmann::ordered_json head = {};
  std::string unit = {};  ///< Of the length: "samples" or "seconds".
  double length = 0;
  std::vector<Rung> rungs = {};
  std::vector<TrialReport> trials = {};
  std::optional<int64_t> best = {};            ///< A trial.
  std::optional<double> base_loss = {};        ///< Of the recipe as it is, at the highest rung that it and the best trial reached,
  std::optional<double> best_loss_there = {};  ///< and the best trial's there.
  int64_t base_rung = 0;
  std::vector<BatchSpeed> speeds = {};
  std::vector<AxisStudy> axes = {};
  std::vector<CostPoint> costs = {};
  TunePrice price = {};
  double spent_seconds = 0;
  double budget_seconds = 0;
  bool is_complete = false;  ///< Every stage has ended.
  std::vector<std::string> notes = {};

  std::string to_text() const;  ///< For a terminal: the best trials and what was spent.
  nlohmann::ordered_json to_json() const;
};

struct ReportInputs {
  std::vector<TrialCurve> curves = {};  ///< Of each planned trial.
  std::vector<SearchAxis> axes = {};
  TrialSettings base = {};  ///< The recipe's own values of the axes.
  TunePrice price = {};
  double budget_seconds = 0;
  int64_t num_sharing = 1;  ///< Trials that share a machine's hour evenly, where the ledger does not say.
};

/// REQUIRES: the record has a plan, and as many curves as trials. Pure.
TuneReport make_tune_report(const TuneRecord& record, const ReportInputs& inputs);

/// "trial-007".
std::string trial_name(int64_t trial);

/// Spearman's rank correlation, equal values sharing their mean rank; nothing for fewer than four pairs or where all values of one side
/// are equal. Pure.
std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs);

}  // namespace darkroom
