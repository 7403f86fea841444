#include "darkroom/show/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"
#include "report_table.h"

namespace darkroom {
namespace {

std::string dollars(double value) { return (value < 0 ? "-$" : "$") + plan_number_text(std::abs(value)); }

std::string purchase_words(const std::string& purchase) { return purchase == "on_demand" ? "on demand" : purchase; }

std::string plan_tile(const std::string& label, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><span>{}</span></div>", escape_html(label), escape_html(value),
                     escape_html(note));
}

std::string plan_tiles(const Plan& plan) {
  const Sheet& sheet = plan.sheet;
  const std::string accelerator = plan.fleet.train.machine.accelerator;
  std::string html = "<div class=\"tiles\">";
  html += plan_tile("training", plan_number_text(sheet.value("train_accelerator_hours")) + " h", "accelerator-hours, " + accelerator);
  html += plan_tile("training takes", plan_number_text(sheet.value("train_hours") / 24) + " days",
                    plan_number_text(sheet.value("samples") / sheet.value("train_hours") / 3600) + " samples/s on the mean");
  for (const std::string& purchase : plan.purchases) {
    html += plan_tile("training, " + purchase_words(purchase), dollars(sheet.value("train_dollars_" + purchase)),
                      "everything: " + dollars(sheet.value("total_dollars_" + purchase)));
  }
  html += plan_tile("storage", plan_number_text(sheet.value("storage_gb") / 1000) + " TB", dollars(sheet.value("storage_dollars")));
  html += plan_tile("energy", plan_number_text(sheet.value("kwh") / 1000) + " MWh",
                    plan_number_text(sheet.value("carbon_kg") / 1000) + " t of carbon dioxide");
  return html + "</div>";
}

std::string published_html(const Plan& plan) {
  if (plan.published.empty()) {
    return {};
  }
  ReportTable table{.title = "Published, and planned", .head = {"figure", "published", "planned", "who published it"}, .rows = {}};
  for (const PublishedCheck& check : plan.published) {
    table.rows.push_back({plan.sheet.figure(check.published.figure).label, plan_number_text(check.published.value),
                          plan_number_text(check.planned), check.published.origin.to_text()});
  }
  return table_html(table);
}

std::string cost_html(const Plan& plan) {
  ReportTable table{.title = "Cost", .head = {"", "hours"}, .rows = {}};
  for (const std::string& purchase : plan.purchases) {
    table.head.push_back(purchase_words(purchase));
  }
  const Sheet& sheet = plan.sheet;
  const auto add_stage = [&](const char* label, const std::string& role) {
    if (sheet.has(role + "_hours")) {
      auto& row = table.rows.emplace_back(std::vector<std::string>{label, plan_number_text(sheet.value(role + "_hours"))});
      for (const std::string& purchase : plan.purchases) {
        row.push_back(dollars(sheet.value(role + "_dollars_" + purchase)));
      }
    }
  };
  add_stage("download", "download");
  add_stage("encode every picture once", "encode");
  add_stage("train", "train");
  for (const auto& [label, figure] : {std::pair("storage", "storage_dollars"), std::pair("requests", "request_dollars"),
                                      std::pair("traffic to the internet", "traffic_dollars")}) {
    auto& row = table.rows.emplace_back(std::vector<std::string>{label, ""});
    row.insert(row.end(), plan.purchases.size(), dollars(sheet.value(figure)));
  }
  auto& total = table.rows.emplace_back(std::vector<std::string>{"everything", plan_number_text(sheet.value("offline_hours"))});
  for (const std::string& purchase : plan.purchases) {
    total.push_back(dollars(sheet.value("total_dollars_" + purchase)));
  }
  auto& expected = table.rows.emplace_back(std::vector<std::string>{"everything, with lost trainers as expected", ""});
  for (const std::string& purchase : plan.purchases) {
    const std::string figure = "expected_total_dollars_" + purchase;
    expected.push_back(sheet.has(figure) ? dollars(sheet.value(figure)) : "-");
  }
  return table_html(table);
}

std::string modes_html(const Plan& plan) {
  ReportTable table{.title = "Offline or online", .head = {"way", "hours", purchase_words(plan.purchases.front())}, .rows = {}};
  for (const PlanMode& mode : plan.modes) {
    table.rows.push_back(
        {mode.label, plan_number_text(plan.sheet.value(mode.hours_figure)), dollars(plan.sheet.value(mode.dollars_figure))});
  }
  std::string html = table_html(table);
  if (plan.sheet.has("encode_balance_256")) {
    ReportTable balance{.title = "Do the encoders keep up?", .head = {"", "256 px", "512 px"}, .rows = {}};
    for (const auto& [label, figure] :
         {std::pair("trainers, samples/s", "train_speed_"), std::pair("encoders, pictures/s", "encode_speed_"),
          std::pair("encoders over trainers", "encode_balance_"), std::pair("encoders that would keep up", "encode_machines_needed_")}) {
      balance.rows.push_back({label, plan_number_text(plan.sheet.value(std::string(figure) + "256")),
                              plan_number_text(plan.sheet.value(std::string(figure) + "512"))});
    }
    html += table_html(balance);
  }
  return html;
}

// The share of runs that are over after x, drawn through the hundredths.
ChartSeries share_curve(const std::string& name, const std::vector<double>& sorted, int colour) {
  ChartSeries series{.name = name, .points = {}, .colour = colour};
  for (int percent = 1; percent <= 100; ++percent) {
    series.points.emplace_back(quantile(sorted, percent / 100.0), percent);
  }
  return series;
}

std::string forecasts_html(const Plan& plan) {
  if (plan.forecasts.empty()) {
    return {};
  }
  ReportTable table{.title = "Training with lost machines",
                    .head = {"", "loss every", "checkpoint every", "hours, 5 %", "50 %", "95 %", "dollars, 5 %", "50 %", "95 %"},
                    .rows = {}};
  std::vector<ChartSeries> hours, costs;
  std::string reasons;
  for (const LossForecast& forecast : plan.forecasts) {
    const std::string& p = forecast.purchase;
    std::vector<std::string> row = {purchase_words(p), plan_number_text(plan.sheet.value("fleet_loss_hours_" + p)) + " h",
                                    plan_number_text(60 * plan.sheet.value("save_interval_" + p)) + " min"};
    for (const auto* values : {&forecast.hours, &forecast.dollars}) {
      for (const double share : {0.05, 0.5, 0.95}) {
        row.push_back(values->empty() ? "-" : plan_number_text(quantile(*values, share)));
      }
    }
    table.rows.push_back(std::move(row));
    if (forecast.hours.empty()) {
      reasons += fmt::format("<p class=\"dim\">{}: {}.</p>", escape_html(purchase_words(p)), escape_html(forecast.not_simulated));
      continue;
    }
    const auto colour = static_cast<int>(hours.size());
    hours.push_back(share_curve(purchase_words(p), forecast.hours, colour));
    costs.push_back(share_curve(purchase_words(p), forecast.dollars, colour));
  }
  std::string html = table_html(table) + reasons;
  if (!hours.empty()) {
    html += "<div class=\"plots\">";
    html += render_line_chart(hours, {.title = "Runs that are over", .unit = "%", .x_label = "hours", .from_zero = true});
    html += render_line_chart(costs, {.title = "Runs that cost no more", .unit = "%", .x_label = "dollars", .from_zero = true});
    html += "</div>";
  }
  return html + fmt::format("<p class=\"dim\">{} simulated runs per purchase, seed {}.</p>", plan.request.num_trials, plan.request.seed);
}

std::string sensitivity_html(const Plan& plan, const BusinessAnswer& answer) {
  double widest = 0;
  for (const SensitivityRow& row : answer.sensitivity) {
    widest = std::max(widest, std::abs(row.high_outcome - row.low_outcome));
  }
  std::string html =
      fmt::format("<h2>What the outcome depends on</h2><p class=\"dim\">{}: {} as planned.</p>",
                  escape_html(plan.sheet.figure(answer.outcome_figure).label), dollars(plan.sheet.value(answer.outcome_figure)));
  html += fmt::format(
      "<div class=\"wide\"><table><tr><th>{0} % lower, {0} % higher</th><th class=\"n\">lower</th><th "
      "class=\"n\">higher</th><th></th></tr>",
      plan_number_text(answer.given.sensitivity_percent));
  for (const SensitivityRow& row : answer.sensitivity) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td><i class=\"bar\" style=\"width: {:.1f}rem\"></i></td></tr>",
        escape_html(row.label), dollars(row.low_outcome), dollars(row.high_outcome),
        widest > 0 ? 10 * std::abs(row.high_outcome - row.low_outcome) / widest : 0);
  }
  return html + "</table></div>";
}

std::string business_html(const Plan& plan) {
  if (!plan.business) {
    return {};
  }
  const BusinessAnswer& answer = *plan.business;
  std::string html = "<h2>Business case</h2>";
  for (const BusinessReply& reply : answer.replies) {
    html += fmt::format("<p><b>{}</b><br>{}</p>", escape_html(reply.question), escape_html(reply.answer));
  }
  html += sensitivity_html(plan, answer);
  if (!answer.outcomes.empty()) {
    html += "<div class=\"plots\">";
    html +=
        render_line_chart({share_curve("custom against open", answer.outcomes, 0)},
                          {.title = "Draws of the comparison that leave no more", .unit = "%", .x_label = "dollars", .from_zero = true});
    html += "</div>";
  }
  return html;
}

std::string list_html(const char* title, const std::vector<std::string>& lines) {
  std::string html = lines.empty() ? "" : fmt::format("<h2>{}</h2><ul>", title);
  for (const std::string& line : lines) {
    html += "<li>" + escape_html(line) + "</li>";
  }
  return html + (lines.empty() ? "" : "</ul>");
}

std::string figures_html(const Plan& plan) {
  ReportTable table{.title = {}, .head = {"figure", "value", "unit", "formula, or who says so"}, .rows = {}};
  for (const Figure& figure : plan.sheet.figures()) {
    table.rows.push_back({figure.name + ": " + figure.label, plan_number_text(figure.value), figure.unit == "1" ? "" : figure.unit,
                          figure.formula.empty() ? figure.source : "= " + figure.formula});
  }
  return fmt::format("<h2>Every figure</h2><details><summary>{} figures with formula or source</summary>{}</details>",
                     plan.sheet.figures().size(), table_html(table));
}

std::string prediction_html(const Plan& plan) {
  if (!plan.sheet.has("predicted_seconds")) {
    return {};
  }
  ReportTable table{.title = "Another run of the measured recipe", .head = {}, .rows = {}};
  for (const char* name : {"predicted_steps", "predicted_batch", "predicted_step_seconds", "predicted_seconds"}) {
    const Figure& figure = plan.sheet.figure(name);
    table.rows.push_back({figure.label, plan_number_text(figure.value) + " " + figure.unit});
  }
  return table_html(table);
}

}  // namespace

std::string render_plan_page(const Plan& plan) {
  std::string body = fmt::format("<p class=\"dim\">{} samples at 256 px and {} at 512 px &middot; {}<br>prices, rates and facts: {}</p>",
                                 plan_number_text(plan.sheet.value("samples_256")), plan_number_text(plan.sheet.value("samples_512")),
                                 escape_html(plan.fleet.to_text()), escape_html(plan.catalogue));
  body += plan_tiles(plan) + business_html(plan) + published_html(plan) + prediction_html(plan) + cost_html(plan) + modes_html(plan);
  body += forecasts_html(plan) + list_html("Assumed", plan.notes) + list_html("Left out", plan.left_out) + figures_html(plan);
  return render_html_page("Plan", body, chart_script());
}

}  // namespace darkroom
