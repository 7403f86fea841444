#include "darkroom/plan/business.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "cost_model.h"
#include "plan_random.h"

namespace darkroom {
namespace {

constexpr int64_t kScoreDraws = 10'000;

void add_case(const BusinessCase& given, Plan& plan) {
  Sheet& sheet = plan.sheet;
  const auto give = [&](const char* name, double value, const char* unit, const char* label) {
    sheet.give(name, value, unit, given.name, label);
  };
  give("revenue_now", given.revenue_now, "$/years", "revenue of a year without the model");
  give("revenue_then", given.revenue_then, "$/years", "revenue of a year with it");
  give("margin", given.margin, "1", "share of revenue that stays");
  give("years", given.years, "years", "years that count");
  give("budget_share", given.budget_share, "years", "compute budget, in years of the gain");
  give("other_dollars", given.other_dollars, "$", "people, data and other things paid once");
  give("running_dollars", given.running_dollars, "$/years", "hosting and other things paid every year");
  const std::string with_losses = "expected_total_dollars_" + given.purchase;
  const std::string cost = sheet.has(with_losses) ? with_losses : "total_dollars_" + given.purchase;
  sheet.derive("revenue_change", "$/years", "revenue_then - revenue_now", "more revenue a year");
  sheet.derive("gain", "$/years", "revenue_change * margin", "more profit a year");
  sheet.derive("budget_dollars", "$", "gain * budget_share", "compute budget that the gain carries");
  sheet.derive("budget_runs", "1", "budget_dollars / " + cost, "runs of this plan that the budget pays");
  sheet.derive("budget_accelerator_hours", "accelerators*h", "budget_dollars * train_accelerators_each / train_price_" + given.purchase,
               "accelerator-hours that the budget pays");
  sheet.derive("project_dollars", "$", cost + " + other_dollars", "this plan and what else is paid once");
  sheet.derive("kept_gain", "$/years", "gain - running_dollars", "what of it is left when what is paid every year is paid");
  if (sheet.value("kept_gain") > 0) {  // Else it never is.
    sheet.derive("payback_months", "months", "project_dollars / kept_gain * months_per_year", "time until the gain has paid the project");
  }
  sheet.derive("net_dollars", "$", "(gain - running_dollars) * years - project_dollars", "what is left after the years, against no model");
}

void add_asked(const BusinessCase& given, Plan& plan) {
  if (given.asked_dollars > 0) {
    plan.sheet.give("asked_dollars", given.asked_dollars, "$", given.name, "compute budget that was asked for");
    plan.sheet.derive("asked_share", "years", "asked_dollars / gain", "the same in years of the gain");
    if (plan.sheet.value("kept_gain") > 0) {
      plan.sheet.derive("asked_payback_months", "months", "(asked_dollars + other_dollars) / kept_gain * months_per_year",
                        "time until the gain has paid what was asked for and what else is paid once");
    }
  }
}

bool is_paired(const ModelComparison& comparison) { return !comparison.report.empty(); }

void add_scores(const BusinessCase& given, const ModelComparison& comparison, Sheet& sheet) {
  const std::string source = fmt::format("{}: comparison by {}", given.name, comparison.metric);
  sheet.give("custom_score", comparison.custom, "1", source, "score of the custom model");
  sheet.give("custom_error", comparison.custom_error, "1", source, "its standard error");
  sheet.give("open_score", comparison.open, "1", source, "score of the open model");
  sheet.give("open_error", comparison.open_error, "1", source, "its standard error");
}

void add_paired_scores(const ModelComparison& comparison, Sheet& sheet) {
  const std::string source = fmt::format("{}: {} over {} prompts", comparison.report, comparison.metric, comparison.num_prompts);
  sheet.give("custom_score", comparison.custom, "1", source, "score of the custom model");
  sheet.give("score_difference", comparison.custom - comparison.open, "1", source, "by how much it is above that of the open model");
  sheet.give("difference_error", comparison.difference_error, "1", source, "standard error of this paired difference");
  sheet.derive("open_score", "1", "custom_score - score_difference", "score of the open model");
}

void add_choice(const BusinessCase& given, Plan& plan) {
  Sheet& sheet = plan.sheet;
  if (is_paired(*given.comparison)) {
    add_paired_scores(*given.comparison, sheet);
  } else {
    add_scores(given, *given.comparison, sheet);
  }
  sheet.derive("open_gain", "$/years", "gain * min(1, open_score / custom_score)", "gain with the open model, in proportion to the scores");
  sheet.derive("custom_advantage", "$/years", "gain - open_gain", "gain that only the custom model brings");
  sheet.derive("custom_net_dollars", "$", "custom_advantage * years - project_dollars",
               "what the custom model leaves after the years, against the open one");
  sheet.derive("break_even_score", "1", "custom_score * (1 - project_dollars / (gain * years))",
               "score of the open model from which on the custom one does not pay");
}

// A draw of the open score over the custom one. Of scores that belong together only their difference is drawn, by Student's t: what moves
// both of them moves neither model ahead.
double drawn_ratio(const ModelComparison& comparison, const PlanRandom& random) {
  if (is_paired(comparison)) {
    const double t = random.student_t(0, static_cast<double>(comparison.num_prompts - 1));
    return std::max(comparison.open - t * comparison.difference_error, 0.0) / comparison.custom;
  }
  const double custom = std::max(comparison.custom + random.normal(0) * comparison.custom_error, 1e-12);
  return std::max(comparison.open + random.normal(1) * comparison.open_error, 0.0) / custom;
}

// The outcome for draws of what was measured.
void draw_scores(const Plan& plan, BusinessAnswer& answer) {
  const Sheet& sheet = plan.sheet;
  const double stake = sheet.value("gain") * sheet.value("years"), project = sheet.value("project_dollars");
  for (int64_t draw = 0; draw < kScoreDraws; ++draw) {
    const PlanRandom random(plan.request.seed, "scores", static_cast<uint32_t>(draw));
    answer.outcomes.push_back(stake * (1 - std::min(1.0, drawn_ratio(*answer.given.comparison, random))) - project);
  }
  std::sort(answer.outcomes.begin(), answer.outcomes.end());
  const auto first_good = std::upper_bound(answer.outcomes.begin(), answer.outcomes.end(), 0.0);
  answer.share_worth_it = static_cast<double>(answer.outcomes.end() - first_good) / static_cast<double>(kScoreDraws);
}

void add_draws(Plan& plan, BusinessAnswer& answer) {
  draw_scores(plan, answer);
  const std::string source = fmt::format("{} draws of {}, seed {}", kScoreDraws,
                                         is_paired(*answer.given.comparison) ? "the paired difference" : "both scores", plan.request.seed);
  for (const int percent : {5, 50, 95}) {
    plan.sheet.give(fmt::format("custom_net_p{}", percent), quantile(answer.outcomes, percent / 100.0), "$", source,
                    fmt::format("custom against open, {} % of the draws leave no more", percent));
  }
  plan.sheet.give("share_worth_it", answer.share_worth_it, "1", source, "share of the draws in which the custom model pays");
}

void add_sensitivity(Plan& plan, BusinessAnswer& answer) {
  const Sheet& sheet = plan.sheet;
  const double share = answer.given.sensitivity_percent / 100;
  const std::string price = "train_price_" + answer.given.purchase;
  for (const std::string& name :
       {std::string("revenue_then"), std::string("margin"), std::string("years"), std::string("open_score"),
        std::string("score_difference"), std::string("custom_score"), std::string("other_dollars"), std::string("running_dollars"), price,
        std::string("train_rate_256"), std::string("train_rate_512"), std::string("measured_train_rate")}) {
    if (!sheet.has(name) || !sheet.figure(name).formula.empty() || sheet.value(name) == 0) {
      continue;
    }
    const Figure& figure = sheet.figure(name);
    SensitivityRow row{
        .figure = name, .label = figure.label, .low_input = figure.value * (1 - share), .high_input = figure.value * (1 + share)};
    row.low_outcome = sheet.with({{name, row.low_input}}).value(answer.outcome_figure);
    row.high_outcome = sheet.with({{name, row.high_input}}).value(answer.outcome_figure);
    answer.sensitivity.push_back(row);
  }
  std::stable_sort(answer.sensitivity.begin(), answer.sensitivity.end(), [](const SensitivityRow& a, const SensitivityRow& b) {
    return std::abs(a.high_outcome - a.low_outcome) > std::abs(b.high_outcome - b.low_outcome);
  });
}

Status add_uses(const Catalogue& catalogue, const BusinessCase& given, Plan& plan) {
  Sheet& sheet = plan.sheet;
  for (size_t i = 0; i < given.uses.size(); ++i) {
    const ModelUse& use = given.uses[i];
    const Machine* machine = catalogue.machine(use.machine);
    if (machine == nullptr) {
      std::vector<std::string> names;
      std::transform(catalogue.machines.begin(), catalogue.machines.end(), std::back_inserter(names),
                     [](const auto& one) { return one.name; });
      return Status::invalid_argument(fmt::format("{}: [[use]] {} is on a machine that {} does not have; did you mean '{}'? machine:",
                                                  given.name, i + 1, catalogue.name, nearest_word(names, use.machine)),
                                      use.machine);
    }
    if (catalogue.price(machine->name, "on_demand") == nullptr) {
      return Status::invalid_argument(
          fmt::format("{}: [[use]] {} is on a machine without an on_demand [[price]] in {}, machine:", given.name, i + 1, catalogue.name),
          use.machine);
    }
    const Price& price = *catalogue.price(machine->name, "on_demand");
    const std::string prefix = fmt::format("use{}_", i + 1);
    sheet.give(prefix + "pictures", use.pictures_per_year, "pictures/years", given.name, use.where + ": pictures a year");
    sheet.give(prefix + "value", use.dollars_per_picture, "$/pictures", given.name, use.where + ": what a picture brings in");
    sheet.give(prefix + "seconds", use.seconds_per_picture, "s*accelerators/pictures", given.name, use.where + ": time of a picture");
    sheet.give(prefix + "price", price.dollars_per_hour, "$/h/machines", price.origin.to_text(),
               fmt::format("an hour of a {}", machine->name));
    sheet.give(prefix + "accelerators_each", static_cast<double>(machine->num_accelerators), "accelerators/machines",
               machine->origin.to_text(), fmt::format("accelerators of a {}", machine->name));
    const auto own = [&](const char* formula) { return fmt::format(fmt::runtime(formula), fmt::arg("u", prefix)); };
    sheet.derive(prefix + "cost", "$/pictures", own("{u}seconds / seconds_per_hour / {u}accelerators_each * {u}price"),
                 use.where + ": what painting one costs");
    sheet.derive(prefix + "gain", "$/years", own("{u}pictures * ({u}value - {u}cost)"), use.where + ": what it brings a year");
  }
  return Status::ok();
}

std::string money(double dollars) { return (dollars < 0 ? "-$" : "$") + plan_number_text(std::abs(dollars)); }

BusinessReply reply_on_use(const BusinessCase& given, const Plan& plan) {
  BusinessReply reply{.question = "Where and how is the model used?", .answer = {}};
  if (given.uses.empty()) {
    reply.answer = "The case does not say: it names no [[use]].";
    return reply;
  }
  std::vector<size_t> order(given.uses.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto gain_of = [&](size_t i) { return plan.sheet.value(fmt::format("use{}_gain", i + 1)); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return gain_of(a) > gain_of(b); });
  for (const size_t i : order) {
    const ModelUse& use = given.uses[i];
    reply.answer += fmt::format("{}{}: {}. {} pictures a year bring {} a year; painting one costs {} on a {}.",
                                reply.answer.empty() ? "" : " ", use.where, use.how, plan_number_text(use.pictures_per_year),
                                money(gain_of(i)), money(plan.sheet.value(fmt::format("use{}_cost", i + 1))), use.machine);
  }
  return reply;
}

std::string scores_text(const ModelComparison& comparison) {
  if (is_paired(comparison)) {
    return fmt::format(
        "by {} over {} prompts the custom model has {} and the open one {}, a paired difference of {} +- {} (standard error)",
        comparison.metric, comparison.num_prompts, plan_number_text(comparison.custom), plan_number_text(comparison.open),
        plan_number_text(comparison.custom - comparison.open), plan_number_text(comparison.difference_error));
  }
  return fmt::format("by {} the custom model has {} +- {}, the open one {} +- {} (standard errors)", comparison.metric,
                     plan_number_text(comparison.custom), plan_number_text(comparison.custom_error), plan_number_text(comparison.open),
                     plan_number_text(comparison.open_error));
}

BusinessReply reply_on_choice(const BusinessAnswer& answer, const Plan& plan) {
  BusinessReply reply{.question = "Is a custom model worth it against the open one?", .answer = {}};
  const Sheet& sheet = plan.sheet;
  if (!answer.given.comparison) {
    reply.answer = fmt::format("Not known: the case holds no [comparison]. Against no model at all it leaves {} after {} years.",
                               money(sheet.value("net_dollars")), plan_number_text(answer.given.years));
    return reply;
  }
  const char* verdict = answer.share_worth_it >= 0.95 ? "Yes" : answer.share_worth_it <= 0.05 ? "No" : "The measurement does not decide it";
  reply.answer = fmt::format(
      "{}: {}. With the gain in proportion to the scores it leaves {} (90 % of the draws: {} to {}) and pays in {} % of them. It pays "
      "while "
      "the open model scores below {}.",
      verdict, scores_text(*answer.given.comparison), money(sheet.value("custom_net_dollars")), money(sheet.value("custom_net_p5")),
      money(sheet.value("custom_net_p95")), plan_number_text(100 * answer.share_worth_it),
      plan_number_text(sheet.value("break_even_score")));
  return reply;
}

// "in 3.2 months", by a figure that is there only where it ever does.
std::string payback_text(const Sheet& sheet, const char* figure) {
  return sheet.has(figure) ? fmt::format("in {} months", plan_number_text(sheet.value(figure))) : "never";
}

BusinessReply reply_on_budget(const BusinessAnswer& answer, const Plan& plan) {
  const Sheet& sheet = plan.sheet;
  BusinessReply reply{.question = "What may it cost?", .answer = {}};
  reply.answer = fmt::format(
      "Revenue from {} to {} a year is a gain of {} a year. {} % of a year's gain is a compute budget of {}: {} accelerator-hours, or {} "
      "runs of this plan. This plan, with what else is paid once, costs {}; what is left of the gain{} pays it back {}.",
      money(sheet.value("revenue_now")), money(sheet.value("revenue_then")), money(sheet.value("gain")),
      plan_number_text(100 * answer.given.budget_share), money(sheet.value("budget_dollars")),
      plan_number_text(sheet.value("budget_accelerator_hours")), plan_number_text(sheet.value("budget_runs")),
      money(sheet.value("project_dollars")),
      answer.given.running_dollars > 0 ? fmt::format(", {} a year,", money(sheet.value("kept_gain"))) : "",
      payback_text(sheet, "payback_months"));
  if (answer.given.asked_dollars > 0) {
    reply.answer += fmt::format(" The {} that were asked for are {} % of a year's gain; with what else is paid once they come back {}.",
                                money(answer.given.asked_dollars), plan_number_text(100 * sheet.value("asked_share")),
                                payback_text(sheet, "asked_payback_months"));
  }
  return reply;
}

}  // namespace

Status add_business(const Catalogue& catalogue, const BusinessCase& given, Plan& plan) {
  if (std::find(plan.purchases.begin(), plan.purchases.end(), given.purchase) == plan.purchases.end()) {
    return Status::invalid_argument(
        fmt::format("{}: [budget] purchase: {} has no such price of the trainers, got:", given.name, catalogue.name), given.purchase);
  }
  plan.sheet.section("business");
  BusinessAnswer answer{.given = given, .outcome_figure = given.comparison ? "custom_net_dollars" : "net_dollars"};
  add_case(given, plan);
  add_asked(given, plan);
  DARKROOM_RETURN_IF_ERROR(add_uses(catalogue, given, plan));
  if (given.comparison) {
    add_choice(given, plan);
    add_draws(plan, answer);
  }
  add_sensitivity(plan, answer);
  answer.replies = {reply_on_budget(answer, plan), reply_on_use(given, plan), reply_on_choice(answer, plan)};
  plan.business = std::move(answer);
  return Status::ok();
}

}  // namespace darkroom
