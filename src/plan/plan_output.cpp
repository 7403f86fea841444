#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "darkroom/plan/plan.h"

namespace darkroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kPlanFormat = 1;

Json figure_json(const Figure& figure) {
  Json json = {{"section", figure.section}, {"name", figure.name}, {"label", figure.label}, {"value", figure.value}, {"unit", figure.unit}};
  if (figure.formula.empty()) {
    json["source"] = figure.source;
  } else {
    json["formula"] = figure.formula;
    json["inputs"] = figure.inputs;
  }
  return json;
}

Json business_json(const BusinessAnswer& answer) {
  Json json = {
      {"case", answer.given.name}, {"outcome_figure", answer.outcome_figure}, {"answers", Json::array()}, {"sensitivity", Json::array()}};
  for (const BusinessReply& reply : answer.replies) {
    json["answers"].push_back({{"question", reply.question}, {"answer", reply.answer}});
  }
  for (const SensitivityRow& row : answer.sensitivity) {
    json["sensitivity"].push_back({{"figure", row.figure},
                                   {"low_input", row.low_input},
                                   {"high_input", row.high_input},
                                   {"low_outcome", row.low_outcome},
                                   {"high_outcome", row.high_outcome}});
  }
  return json;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char character : text) {
    quoted += character == '"' ? "\"\"" : std::string(1, character);
  }
  return quoted + "\"";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

/// Rows of name and value with the values in one column.
class TextRows {
 public:
  void title(const std::string& text) { text_ += (text_.empty() ? "" : "\n") + text + "\n"; }
  void row(const std::string& name, const std::string& value) { text_ += fmt::format("  {:<52} {}\n", name, value); }
  /// A figure under its label; nothing where the plan has none.
  void figure(const Sheet& sheet, const std::string& name) {
    if (sheet.has(name)) {
      const Figure& one = sheet.figure(name);
      row(one.label, with_unit(one.value, one.unit));
    }
  }
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  const std::string& text() const { return text_; }

  static std::string with_unit(double value, const std::string& unit) {
    return unit == "$" ? (value < 0 ? "-$" : "$") + plan_number_text(std::abs(value))
                       : plan_number_text(value) + (unit == "1" ? "" : " " + unit);
  }

 private:
  std::string text_;
};

void print_run(const Plan& plan, TextRows& rows) {
  const Sheet& sheet = plan.sheet;
  rows.title("Plan");
  rows.row("fleet", plan.fleet.to_text());
  for (const char* name : {"samples_256", "samples_512", "train_accelerator_hours", "train_hours", "encode_hours", "download_hours"}) {
    rows.figure(sheet, name);
  }
  for (const std::string& purchase : plan.purchases) {
    rows.figure(sheet, "train_dollars_" + purchase);
  }
  for (const char* name : {"storage_dollars", "request_dollars", "traffic_dollars"}) {
    rows.figure(sheet, name);
  }
  for (const std::string& purchase : plan.purchases) {
    rows.figure(sheet, "total_dollars_" + purchase);
    rows.figure(sheet, "expected_total_dollars_" + purchase);
  }
  for (const char* name : {"storage_gb", "kwh", "carbon_kg", "encode_balance_256", "encode_balance_512", "encode_machines_needed_256",
                           "encode_machines_needed_512"}) {
    rows.figure(sheet, name);
  }
}

void print_modes(const Plan& plan, TextRows& rows) {
  rows.title("Offline or online");
  for (const PlanMode& mode : plan.modes) {
    rows.row(mode.label, fmt::format("{} h, ${}", plan_number_text(plan.sheet.value(mode.hours_figure)),
                                     plan_number_text(plan.sheet.value(mode.dollars_figure))));
  }
}

void print_forecasts(const Plan& plan, TextRows& rows) {
  rows.title("Training with lost machines (5 %, 50 %, 95 % of the simulated runs)");
  for (const LossForecast& forecast : plan.forecasts) {
    if (!forecast.not_simulated.empty()) {
      rows.row(forecast.purchase, forecast.not_simulated);
      continue;
    }
    const auto band = [](const std::vector<double>& values) {
      return fmt::format("{} .. {} .. {}", plan_number_text(quantile(values, 0.05)), plan_number_text(quantile(values, 0.5)),
                         plan_number_text(quantile(values, 0.95)));
    };
    rows.row(forecast.purchase, fmt::format("{} h, $ {}", band(forecast.hours), band(forecast.dollars)));
  }
}

void print_business(const BusinessAnswer& answer, TextRows& rows) {
  rows.title("Business case");
  for (const BusinessReply& reply : answer.replies) {
    rows.line(reply.question);
    rows.line("  " + reply.answer);
  }
}

}  // namespace

std::string plan_number_text(double value) {
  const double size = std::abs(value);
  if (size == 0) {
    return "0";
  }
  if (size >= 1e15 || size < 1e-4) {
    return fmt::format("{:.3e}", value);
  }
  if (size < 1000) {
    return fmt::format("{:.4g}", value);
  }
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > (value < 0 ? 4U : 3U); at -= 3) {
    digits.insert(at - 3, 1, ',');
  }
  return digits;
}

std::string Plan::to_text() const {
  TextRows rows;
  print_run(*this, rows);
  if (!published.empty()) {
    rows.title("Published, and planned");
    for (const PublishedCheck& check : published) {
      rows.row(check.published.figure, fmt::format("{}   {}", plan_number_text(check.published.value), plan_number_text(check.planned)));
    }
  }
  print_modes(*this, rows);
  print_forecasts(*this, rows);
  if (sheet.has("predicted_seconds")) {
    rows.title("Another run of the measured recipe");
    rows.figure(sheet, "predicted_step_seconds");
    rows.figure(sheet, "predicted_seconds");
  }
  if (business) {
    print_business(*business, rows);
  }
  if (!notes.empty()) {
    rows.title("Assumed");
    for (const std::string& note : notes) {
      rows.line(note);
    }
  }
  rows.title("Left out");
  for (const std::string& what : left_out) {
    rows.line(what);
  }
  return rows.text();
}

Json Plan::to_json() const {
  Json json = {{"format_version", kPlanFormat}, {"catalogue", catalogue},       {"fleet", fleet.to_text()},
               {"seed", request.seed},          {"trials", request.num_trials}, {"figures", Json::array()},
               {"published", Json::array()},    {"modes", Json::array()},       {"forecasts", Json::array()}};
  for (const Figure& figure : sheet.figures()) {
    json["figures"].push_back(figure_json(figure));
  }
  for (const PublishedCheck& check : published) {
    json["published"].push_back({{"figure", check.published.figure},
                                 {"published", check.published.value},
                                 {"planned", check.planned},
                                 {"source", check.published.origin.to_text()}});
  }
  for (const PlanMode& mode : modes) {
    json["modes"].push_back({{"label", mode.label}, {"hours", mode.hours_figure}, {"dollars", mode.dollars_figure}});
  }
  for (const LossForecast& forecast : forecasts) {
    Json one = {{"purchase", forecast.purchase}};
    if (!forecast.not_simulated.empty()) {
      one["not_simulated"] = forecast.not_simulated;
    }
    json["forecasts"].push_back(std::move(one));
  }
  if (business) {
    json["business"] = business_json(*business);
  }
  json["notes"] = notes;
  json["left_out"] = left_out;
  return json;
}

std::string Plan::to_csv() const {
  std::string csv = "section,name,label,value,unit,formula,inputs,source\n";
  for (const Figure& figure : sheet.figures()) {
    csv += fmt::format("{},{},{},{},{},{},{},{}\n", csv_cell(figure.section), figure.name, csv_cell(figure.label), figure.value,
                       figure.unit, csv_cell(figure.formula), csv_cell(joined(figure.inputs)), csv_cell(figure.source));
  }
  return csv;
}

}  // namespace darkroom
