#include "darkroom/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cost_model.h"
#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr int64_t kMostSamples = 1'000'000'000'000'000;  // 1e15: beyond it a double no longer counts one by one.
constexpr int64_t kMostTrials = 100'000;

Result<const StorePrice*> find_store(const Catalogue& catalogue, const std::string& name) {
  if (name.empty()) {
    return &catalogue.stores.front();
  }
  if (const StorePrice* store = catalogue.store(name)) {
    return store;
  }
  std::vector<std::string> names;
  for (const StorePrice& store : catalogue.stores) {
    names.push_back(store.name);
  }
  return Status::invalid_argument(
      fmt::format("{} has no such [[store]]; did you mean '{}'? got:", catalogue.name, nearest_word(names, name)), name);
}

void find_purchases(const Catalogue& catalogue, Plan& plan) {
  for (const char* purchase : kPurchases) {
    if (catalogue.price(plan.fleet.train.machine.name, purchase) != nullptr) {
      plan.purchases.emplace_back(purchase);
    }
  }
}

void say_what_is_left_out(Plan& plan) {
  std::vector<std::string>& left_out = plan.left_out;
  if (plan.request.is_published_run()) {
    left_out.emplace_back(
        "the published hours and dollars are those of training alone: encoding, downloading, storage, requests and validation are "
        "not in them (hours times the price of the trainers give both sums exactly)");
  }
  if (!plan.fleet.encode) {
    left_out.emplace_back("encoding: the fleet has no encode= group");
  }
  if (!plan.fleet.download) {
    left_out.emplace_back("downloading: the fleet has no download= group");
  }
  left_out.emplace_back("people, trials that fail, the search for good settings, evaluation");
  left_out.emplace_back("validation, sample pictures and start-up while training");
  left_out.emplace_back(
      "the losses of a larger fleet: speed grows in proportion to the accelerators (MosaicML measured 137.5 samples/s at 256 px of "
      "each of 8 A100, 90.6 of each of 128)");
  left_out.emplace_back(
      "lost encoders and downloaders: they cost an item's work each; lost trainers have their own table and are in no other hours");
  left_out.emplace_back("traffic between zones and regions, disks and addresses of the machines, tax, support, discounts by volume");
  left_out.emplace_back("storage after the last stage; the URL tables");
}

Status check_numbers(const Sheet& sheet) {
  for (const Figure& figure : sheet.figures()) {
    if (!std::isfinite(figure.value)) {
      return Status::invalid_argument("a figure of the plan gets too large to be a number, take smaller inputs (figure):", figure.name);
    }
  }
  return Status::ok();
}

}  // namespace

bool PlanRequest::is_published_run() const {
  const PlanRequest published;
  return samples_256 == published.samples_256 && samples_512 == published.samples_512 && fleet == published.fleet;
}

Status PlanRequest::validate() const {
  for (const auto& [name, value] : {std::pair("--samples-256", samples_256), std::pair("--samples-512", samples_512)}) {
    if (value < 0 || value > kMostSamples) {
      return Status::invalid_argument(fmt::format("{} must be from 0 to {}, got:", name, kMostSamples), value);
    }
  }
  if (samples_256 + samples_512 == 0) {
    return Status::invalid_argument("--samples-256 and --samples-512 are both 0: there is nothing to plan");
  }
  if (num_trials < 1 || num_trials > kMostTrials) {
    return Status::invalid_argument(fmt::format("--trials must be from 1 to {}, got:", kMostTrials), num_trials);
  }
  if (predict && (predict->steps < 1 || predict->batch < 0)) {
    return Status::invalid_argument("--steps must be at least 1, got:", predict->steps);
  }
  return Status::ok();
}

Result<Plan> make_plan(const Catalogue& catalogue, const PlanRequest& request, const MeasuredRates& measured,
                       const std::optional<BusinessCase>& business) {
  DARKROOM_RETURN_IF_ERROR(request.validate());
  if (request.predict && !measured.steps) {
    return Status::invalid_argument("--steps needs --from RUN, a training run whose steps were measured");
  }
  Plan plan{.request = request, .catalogue = catalogue.name, .notes = measured.notes};
  DARKROOM_ASSIGN_OR_RETURN(plan.fleet, parse_fleet(request.fleet, catalogue));
  DARKROOM_ASSIGN_OR_RETURN(const StorePrice* store, find_store(catalogue, request.store));
  find_purchases(catalogue, plan);
  add_workload(catalogue, measured, plan);
  DARKROOM_RETURN_IF_ERROR(add_speeds(catalogue, measured, plan));
  add_hours(plan);
  add_storage(*store, plan);
  add_dollars(catalogue, plan);
  add_modes(plan);
  add_energy(plan);
  DARKROOM_RETURN_IF_ERROR(check_numbers(plan.sheet));
  add_losses(catalogue, plan);
  if (request.predict) {
    add_prediction(measured, *request.predict, plan);
  }
  if (business) {
    DARKROOM_RETURN_IF_ERROR(add_business(catalogue, *business, plan));
  }
  DARKROOM_RETURN_IF_ERROR(check_numbers(plan.sheet));
  const bool is_as_published = request.is_published_run() && measured.from.empty();
  for (const Published& published : is_as_published ? catalogue.published : std::vector<Published>()) {
    if (!plan.sheet.has(published.figure)) {
      return Status::invalid_argument(fmt::format("{}: a [[published]] is of a figure that plans do not have, figure:", catalogue.name),
                                      published.figure);
    }
    plan.published.push_back({published, plan.sheet.value(published.figure)});
  }
  say_what_is_left_out(plan);
  return plan;
}

double quantile(const std::vector<double>& sorted, double share) {
  DARKROOM_CHECK(!sorted.empty() && share > 0 && share <= 1, "a quantile of nothing, or of no share:", share);
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace darkroom
