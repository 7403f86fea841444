#include <fmt/format.h>

#include <algorithm>

#include "darkroom/tune/tune_report.h"

namespace darkroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTrialsShown = 10;

// The best first: by rung, then by loss; those without a score last.
std::vector<const TrialReport*> ranked(const std::vector<TrialReport>& trials) {
  std::vector<const TrialReport*> order;
  for (const TrialReport& trial : trials) {
    order.push_back(&trial);
  }
  std::stable_sort(order.begin(), order.end(), [](const TrialReport* a, const TrialReport* b) {
    return a->rung != b->rung ? a->rung > b->rung : a->loss.value_or(0) < b->loss.value_or(0);
  });
  return order;
}

Json settings_json(const TrialSettings& settings) {
  Json json = Json::object();
  for (const auto& [key, value] : settings) {
    json[key] = value;
  }
  return json;
}

Json trial_json(const TrialReport& trial, const TunePrice& price) {
  Json json = {{"name", trial.name},
               {"settings", settings_json(trial.settings)},
               {"state", trial.state},
               {"rung", trial.rung},
               {"loss", trial.loss ? Json(*trial.loss) : Json()},
               {"step", trial.step},
               {"full_steps", trial.full_steps},
               {"samples", trial.samples},
               {"seconds", trial.seconds},
               {"images_per_second", trial.images_per_second},
               {"peak_bytes", trial.peak_bytes},
               {"machine_hours", trial.machine_hours}};
  if (price.dollars_per_hour > 0) {
    json["dollars"] = trial.dollars;
  }
  if (price.watts > 0) {
    json["kilowatt_hours"] = trial.kilowatt_hours;
  }
  if (!trial.reason.empty()) {
    json["reason"] = trial.reason;
  }
  json["curve"] = Json::array();
  for (const CurvePoint& point : trial.curve) {
    json["curve"].push_back({{"step", point.step}, {"samples", point.samples}, {"seconds", point.seconds}, {"loss", point.loss}});
  }
  return json;
}

Json axis_json(const AxisStudy& axis) {
  Json bins = Json::array();
  for (const AxisBin& bin : axis.bins) {
    bins.push_back({{"values", bin.label}, {"trials", bin.num_trials}, {"best", bin.best}, {"median", bin.median}});
  }
  return {{"key", axis.key},
          {"rank_correlation", axis.rank_correlation ? Json(*axis.rank_correlation) : Json()},
          {"chance", axis.chance},
          {"bins", bins}};
}

Json cost_json(const CostPoint& point, const TunePrice& price) {
  Json json = {{"trial", trial_name(point.trial)}, {"rung", point.rung}, {"machine_hours", point.machine_hours}, {"loss", point.loss}};
  if (price.dollars_per_hour > 0) {
    json["dollars"] = point.dollars;
  }
  json["is_on_front"] = point.is_on_front;
  return json;
}

}  // namespace

Json TuneReport::to_json() const {
  Json json = {{"format_version", 2}, {"search", head.value("search", Json::object())}, {"unit", unit}, {"length", length}};
  json["rungs"] = Json::array();
  for (const Rung& rung : rungs) {
    json["rungs"].push_back({{"share", rung.share}, {"trials", rung.num_trials}});
  }
  json["best"] = best ? Json(trial_name(*best)) : Json();
  json["is_complete"] = is_complete;
  json["spent_seconds"] = spent_seconds;
  json["budget_seconds"] = budget_seconds;
  if (base_loss && best_loss_there) {
    json["recipe_as_it_is"] = {{"rung", base_rung}, {"loss", *base_loss}, {"best_loss", *best_loss_there}};
  }
  json["price"] = {{"label", price.label}, {"dollars_per_hour", price.dollars_per_hour}, {"watts", price.watts}};
  json["trials"] = Json::array();
  for (const TrialReport& trial : trials) {
    json["trials"].push_back(trial_json(trial, price));
  }
  json["speeds"] = Json::array();
  for (const BatchSpeed& speed : speeds) {
    json["speeds"].push_back({{"batch", speed.batch},
                              {"measured", speed.measured},
                              {"steps_per_second", speed.steps_per_second},
                              {"images_per_second", speed.images_per_second},
                              {"peak_bytes", speed.peak_bytes}});
  }
  json["fields"] = Json::array();
  for (const AxisStudy& axis : axes) {
    json["fields"].push_back(axis_json(axis));
  }
  json["costs"] = Json::array();
  for (const CostPoint& point : costs) {
    json["costs"].push_back(cost_json(point, price));
  }
  json["notes"] = notes;
  return json;
}

std::string TuneReport::to_text() const {
  std::string text;
  const auto order = ranked(trials);
  for (size_t i = 0; i < std::min(order.size(), kTrialsShown); ++i) {
    const TrialReport& trial = *order[i];
    text += fmt::format("  {}  {}  step {} of {}  {:.0f} s  {}  [{}]{}{}\n", trial.name,
                        trial.loss ? fmt::format("{:.5f}", *trial.loss) : "-", trial.step, trial.full_steps, trial.seconds,
                        settings_text(trial.settings), trial.state, trial.reason.empty() ? "" : ": ", trial.reason);
  }
  if (order.size() > kTrialsShown) {
    text += fmt::format("  and {} more\n", order.size() - kTrialsShown);
  }
  return text;
}

}  // namespace darkroom
