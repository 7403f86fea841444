#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/plan/business.h"
#include "darkroom/plan/catalogue.h"
#include "darkroom/plan/fleet.h"
#include "darkroom/plan/measured.h"
#include "darkroom/plan/sheet.h"

namespace darkroom {

/// What is planned; the defaults are the published run.
struct PlanRequest {
  int64_t samples_256 = 1'126'400'000;  ///< 550,000 steps of 2,048.
  int64_t samples_512 = 1'740'800'000;  ///< 850,000 steps of 2,048.
  std::string fleet = kPublishedFleet;  ///< parse_fleet().
  std::string store = {};               ///< By its name in the catalogue; empty: the first.
  uint64_t seed = 0;                    ///< Of what is simulated.
  int64_t num_trials = 1000;            ///< Runs that are simulated per purchase.
  std::optional<PredictRequest> predict = {};

  bool is_published_run() const;
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// What a run of one purchase takes once machines are lost: shares of the simulated runs.
struct LossForecast {
  std::string purchase;
  std::vector<double> hours;    ///< Of every simulated run, ascending; empty where it was not simulated.
  std::vector<double> dollars;  ///< The same of what the trainers cost.
  std::string not_simulated;    ///< Why, where it was not.
};

/// A way to run encoders and trainers, by the names of its figures.
struct PlanMode {
  std::string label;
  std::string hours_figure;
  std::string dollars_figure;
};

/// A published number beside the planned one.
struct PublishedCheck {
  Published published;
  double planned = 0;
};

/// A plan: every number is a figure of the sheet. Thread safety: a value type.
struct Plan {
  PlanRequest request;
  std::string catalogue;  ///< Name of its file.
  Fleet fleet = {};
  Sheet sheet = {};
  std::vector<std::string> purchases = {};  ///< Those that the trainers have a price for, in the order of kPurchases.
  std::vector<PlanMode> modes = {};
  std::vector<LossForecast> forecasts = {};
  std::vector<PublishedCheck> published = {};  ///< Of the published run only.
  std::optional<BusinessAnswer> business = {};
  std::vector<std::string> notes = {};     ///< What was assumed, for this plan.
  std::vector<std::string> left_out = {};  ///< What no number of this plan holds.

  std::string to_text() const;  ///< For a terminal.
  nlohmann::ordered_json to_json() const;
  std::string to_csv() const;  ///< A line a figure.
};

/// Works out a plan. Errors: kInvalidArgument naming what does not fit: the request's fields, a fleet that the catalogue cannot price or
/// has no rates for, a number that gets too large. The same arguments give the same plan, to the last bit.
Result<Plan> make_plan(const Catalogue& catalogue, const PlanRequest& request, const MeasuredRates& measured = {},
                       const std::optional<BusinessCase>& business = {});

/// The value that `share` of sorted values do not exceed (nearest rank). REQUIRES: not empty, share in (0, 1].
double quantile(const std::vector<double>& sorted, double share);

/// "13,165", "0.0042", "1.126e9": a number for people, at least four digits.
std::string plan_number_text(double value);

}  // namespace darkroom
