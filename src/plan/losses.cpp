#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cost_model.h"
#include "simulation.h"

namespace darkroom {
namespace {

// More losses than this take long to simulate and say nothing new: the sum of so many is its mean.
constexpr double kMostLosses = 20'000;

void add_expected(const Loss& loss, const std::string& source, Plan& plan) {
  Sheet& sheet = plan.sheet;
  const std::string& p = loss.purchase;
  const auto named = [&](const char* formula) { return fmt::format(fmt::runtime(formula), fmt::arg("p", p)); };
  sheet.give("loss_hours_" + p, loss.hours_between, "h*machines", source, named("hours between two losses of one machine, {p}"));
  sheet.give("wait_hours_" + p, loss.wait_hours, "h", source, named("wait for another machine, not paid, {p}"));
  sheet.give("restart_hours_" + p, loss.restart_hours, "h", source, named("restart until training goes on, paid, {p}"));
  sheet.derive("fleet_loss_hours_" + p, "h", named("loss_hours_{p} / train_machines"),
               named("hours between two losses of the trainers, {p}"));
  sheet.derive("save_interval_" + p, "h", named("sqrt(2 * checkpoint_hours * fleet_loss_hours_{p})"),
               named("best time between checkpoints (Young), {p}"));
  sheet.derive("paid_loss_share_" + p, "1",
               named("checkpoint_hours / save_interval_{p} + (save_interval_{p} / 2 + restart_hours_{p}) / fleet_loss_hours_{p}"),
               named("time paid for checkpoints, steps done again and restarts, over training time, {p}"));
  sheet.derive("loss_share_" + p, "1", named("paid_loss_share_{p} + wait_hours_{p} / fleet_loss_hours_{p}"),
               named("the same with the wait for machines, {p}"));
  sheet.derive("expected_hours_" + p, "h", named("train_hours * (1 + loss_share_{p})"), named("training with losses, expected, {p}"));
  sheet.derive("expected_dollars_" + p, "$", named("train_dollars_{p} * (1 + paid_loss_share_{p})"),
               named("training with losses, expected, {p}"));
  sheet.derive("expected_total_dollars_" + p, "$", named("total_dollars_{p} - train_dollars_{p} + expected_dollars_{p}"),
               named("everything, with the trainers' losses as expected, {p}"));
}

LossForecast simulate(const Loss& loss, Plan& plan) {
  Sheet& sheet = plan.sheet;
  const std::string& p = loss.purchase;
  LossForecast forecast{.purchase = p, .hours = {}, .dollars = {}, .not_simulated = {}};
  const double between = sheet.value("fleet_loss_hours_" + p);
  if (sheet.value("loss_share_" + p) > 1) {
    forecast.not_simulated = "losses come so often that more time is lost than used; take fewer machines at once or save faster";
    return forecast;
  }
  if (sheet.value("expected_hours_" + p) / between > kMostLosses) {
    forecast.not_simulated = fmt::format("more than {} losses are expected: the expected value is as good", kMostLosses);
    return forecast;
  }
  const LossSimulation simulation{.work_hours = sheet.value("train_hours"),
                                  .hours_between = between,
                                  .save_interval = sheet.value("save_interval_" + p),
                                  .save_hours = sheet.value("checkpoint_hours"),
                                  .wait_hours = loss.wait_hours,
                                  .restart_hours = loss.restart_hours};
  for (const SimulatedRun& run : simulate_losses(simulation, plan.request.num_trials, plan.request.seed, p)) {
    forecast.hours.push_back(run.hours);
    forecast.dollars.push_back(run.paid_hours * sheet.value("train_machines") * sheet.value("train_price_" + p));
  }
  std::sort(forecast.hours.begin(), forecast.hours.end());
  std::sort(forecast.dollars.begin(), forecast.dollars.end());
  const std::string source = fmt::format("{} simulated runs, seed {}", plan.request.num_trials, plan.request.seed);
  for (const int percent : {5, 50, 95}) {
    sheet.give(fmt::format("hours_{}_p{}", p, percent), quantile(forecast.hours, percent / 100.0), "h", source,
               fmt::format("training with losses, {} % of the runs take no longer, {}", percent, p));
    sheet.give(fmt::format("dollars_{}_p{}", p, percent), quantile(forecast.dollars, percent / 100.0), "$", source,
               fmt::format("training with losses, {} % of the runs cost no more, {}", percent, p));
  }
  return forecast;
}

}  // namespace

void add_losses(const Catalogue& catalogue, Plan& plan) {
  plan.sheet.section("lost machines");
  for (const std::string& purchase : plan.purchases) {
    const Loss* loss = catalogue.loss(purchase);
    if (loss == nullptr) {
      plan.notes.push_back(fmt::format("{} has no [[loss]] of {}: no machine is lost", catalogue.name, purchase));
      continue;
    }
    add_expected(*loss, loss->origin.to_text(), plan);
    plan.forecasts.push_back(simulate(*loss, plan));
  }
}

}  // namespace darkroom
