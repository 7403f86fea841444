#include "darkroom/show/tune_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cell_text.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"
#include "report_table.h"
#include "run_folder.h"
#include "scatter_chart.h"

namespace darkroom {
namespace {

constexpr int kBestColour = 0, kScoredColour = 1;

std::string tune_tile(const std::string& label, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><span>{}</span></div>", escape_html(label), escape_html(value),
                     escape_html(note));
}

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string cost_text(const TuneReport& report, double machine_hours, double dollars) {
  return report.price.dollars_per_hour > 0 ? "$" + number_text(dollars, 3) : number_text(machine_hours, 3) + " h";
}

std::string tune_tiles(const TuneReport& report) {
  double hours = 0, dollars = 0, energy = 0;
  int64_t num_scored = 0;
  for (const TrialReport& trial : report.trials) {
    hours += trial.machine_hours;
    dollars += trial.dollars;
    energy += trial.kilowatt_hours;
    num_scored += trial.loss.has_value() ? 1 : 0;
  }
  std::string html = "<div class=\"tiles\">";
  if (report.best) {
    const TrialReport& best = report.trials[static_cast<size_t>(*report.best)];
    html += tune_tile("best validation loss", number_text(*best.loss), best.name + ", after " + grouped_digits(best.samples) + " samples");
  }
  if (report.base_loss && report.best_loss_there) {
    html += tune_tile("better than the recipe as it is", share_text(1 - *report.best_loss_there / *report.base_loss),
                      fmt::format("{} against {} at rung {}", number_text(*report.best_loss_there), number_text(*report.base_loss),
                                  report.base_rung + 1));
  }
  html += tune_tile("trials", grouped_digits(static_cast<int64_t>(report.trials.size())), fmt::format("{} with a score", num_scored));
  html += tune_tile("time", duration_text(report.spent_seconds), "of " + duration_text(report.budget_seconds));
  html += tune_tile("cost of the trials", cost_text(report, hours, dollars),
                    report.price.label.empty() ? "machine-hours; no price was given" : report.price.label);
  if (report.price.watts > 0) {
    html += tune_tile("energy", number_text(energy, 3) + " kWh", number_text(report.price.watts) + " W, by the catalogue");
  }
  return html + "</div>";
}

std::string best_html(const TuneReport& report, const std::string& best_recipe) {
  if (!report.best) {
    return "<p class=\"damage\">No trial has a score.</p>";
  }
  const TrialReport& best = report.trials[static_cast<size_t>(*report.best)];
  return fmt::format("<h2>The best recipe</h2><p>{}</p><pre>darkroom train {} --output RUN</pre>",
                     escape_html(settings_text(best.settings)), escape_html(best_recipe));
}

// The order of the table: the best first, then by rung and loss.
std::vector<size_t> tune_order(const TuneReport& report) {
  std::vector<size_t> order(report.trials.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TrialReport &first = report.trials[a], &second = report.trials[b];
    return first.rung != second.rung ? first.rung > second.rung : first.loss.value_or(0) < second.loss.value_or(0);
  });
  return order;
}

std::string trials_html(const TuneReport& report) {
  ReportTable table{.title = "Trials",
                    .head = {"trial", "settings", "state", "rung", "validation loss", "steps", "samples", "wall time", "img/s", "memory",
                             report.price.dollars_per_hour > 0 ? "dollars" : "machine-hours"},
                    .rows = {}};
  for (const size_t index : tune_order(report)) {
    const TrialReport& trial = report.trials[index];
    table.rows.push_back({trial.name, settings_text(trial.settings), trial.state,
                          trial.rung < 0 ? "-" : fmt::format("{} of {}", trial.rung + 1, report.rungs.size()),
                          trial.loss ? number_text(*trial.loss, 5) : "-",
                          fmt::format("{} of {}", grouped_digits(trial.step), grouped_digits(trial.full_steps)),
                          grouped_digits(trial.samples), trial.seconds > 0 ? duration_text(trial.seconds) : "-",
                          trial.images_per_second > 0 ? number_text(trial.images_per_second, 3) : "-",
                          trial.peak_bytes > 0 ? bytes_text(trial.peak_bytes) : "-",
                          number_text(report.price.dollars_per_hour > 0 ? trial.dollars : trial.machine_hours, 3)});
  }
  std::string html = table_html(table);
  for (const TrialReport& trial : report.trials) {
    html += trial.reason.empty()
                ? ""
                : fmt::format("<p class=\"damage\">{}: {}</p>", escape_html(trial.name), escape_html(clipped_text(trial.reason, 400)));
  }
  return html;
}

std::string curve_label(const TrialReport& trial, const CurvePoint& point) {
  return fmt::format("{} ({}): {} after {} samples", trial.name, settings_text(trial.settings), number_text(point.loss, 5),
                     grouped_digits(point.samples));
}

std::string curves_html(const TuneReport& report) {
  constexpr size_t kNamed = 3;
  std::vector<ScatterPoint> points;
  std::vector<ScatterLine> named, others;
  bool is_positive = true;
  for (const size_t index : tune_order(report)) {
    const TrialReport& trial = report.trials[index];
    const bool is_named = named.size() < kNamed;
    ScatterLine line{.points = {}, .colour = static_cast<int>(is_named ? named.size() : kNamed), .is_faint = !is_named};
    line.name = !is_named ? "" : trial.name + (report.best == static_cast<int64_t>(index) ? " (best)" : "");
    for (const CurvePoint& point : trial.curve) {
      line.points.emplace_back(static_cast<double>(point.samples), point.loss);
      is_positive = is_positive && !(point.loss <= 0);
      if (is_named) {
        points.push_back({.x = line.points.back().first, .y = point.loss, .label = curve_label(trial, point), .colour = line.colour});
      }
    }
    if (!line.points.empty()) {
      (is_named ? named : others).push_back(std::move(line));
    }
  }
  const std::string note = others.empty() ? "" : fmt::format("; faint: the other {}", others.size());
  others.insert(others.end(), named.rbegin(), named.rend());  // The best one on top.
  return others.empty()
             ? ""
             : "<h2>Curves</h2><div class=\"plots\">" +
                   render_scatter_chart(
                       points, {.title = "Validation loss" + note, .x_label = "samples seen", .log_y = is_positive, .lines = others}) +
                   "</div>";
}

std::string axis_table(const AxisStudy& axis) {
  ReportTable table{.title = {}, .head = {"value", "trials", "best loss", "median loss"}, .rows = {}};
  for (const AxisBin& bin : axis.bins) {
    table.rows.push_back({bin.label, grouped_digits(bin.num_trials), number_text(bin.best, 5), number_text(bin.median, 5)});
  }
  return table_html(table);
}

std::string axis_verdict(const AxisStudy& axis) {
  if (!axis.rank_correlation) {
    return "Too few trials, or no numbers, for a correlation.";
  }
  const bool is_seen = std::abs(*axis.rank_correlation) > axis.chance;
  return fmt::format(
      "Rank correlation with the loss {:+.2f}; {} {:.2f}, below which 95 of 100 searches stay in which the field does nothing.{}",
      *axis.rank_correlation, is_seen ? "beyond" : "within", axis.chance,
      is_seen ? "" : " A field whose best value lies in the middle shows none either.");
}

std::string fields_html(const TuneReport& report) {
  std::string html =
      "<h2>What each field did</h2><p class=\"dim\">Losses at the first rung, which all trials reached. A point is a trial; the others of "
      "its fields differ, too.</p><div class=\"plots\">";
  for (const AxisStudy& axis : report.axes) {
    std::vector<ScatterPoint> points;
    for (const auto& [value, loss] : axis.points) {
      points.push_back(
          {.x = value, .y = loss, .label = fmt::format("{}: loss {}", number_text(value), number_text(loss, 5)), .colour = kScoredColour});
    }
    html += "<div>" +
            render_scatter_chart(points, {.title = axis.key, .unit = "validation loss", .x_label = axis.key, .log_x = axis.is_log}) +
            fmt::format("<p class=\"dim\">{}</p>", escape_html(axis_verdict(axis))) + axis_table(axis) + "</div>";
  }
  return html + "</div>";
}

std::string speeds_html(const TuneReport& report) {
  if (report.speeds.empty()) {
    return {};
  }
  ReportTable table{.title = "Speed by batch", .head = {"samples a step", "optimizer steps/s", "img/s", "memory", "measured"}, .rows = {}};
  for (const BatchSpeed& speed : report.speeds) {
    table.rows.push_back({grouped_digits(speed.batch), number_text(speed.steps_per_second, 3), number_text(speed.images_per_second, 3),
                          speed.peak_bytes > 0 ? bytes_text(speed.peak_bytes) : "-", speed.measured});
  }
  return table_html(table) +
         "<p class=\"dim\">Optimizer steps are what the recipe counts. A trial is one rank: progress bars that count one for each rank and "
         "step show the same.</p>";
}

std::string tune_cost_html(const TuneReport& report) {
  if (report.costs.empty()) {
    return {};
  }
  const bool has_price = report.price.dollars_per_hour > 0;
  const auto cost_of = [&](const CostPoint& point) { return has_price ? point.dollars : point.machine_hours; };
  std::vector<ScatterPoint> points;
  std::vector<std::pair<double, double>> front;
  ReportTable table{.title = {}, .head = {has_price ? "dollars" : "machine-hours", "validation loss", "trial", "rung"}, .rows = {}};
  for (const CostPoint& point : report.costs) {
    points.push_back({.x = cost_of(point),
                      .y = point.loss,
                      .label = fmt::format("{} at rung {}: {}, loss {}", trial_name(point.trial), point.rung + 1,
                                           cost_text(report, point.machine_hours, point.dollars), number_text(point.loss, 5)),
                      .colour = point.is_on_front ? kBestColour : kScoredColour});
    if (point.is_on_front) {
      front.emplace_back(cost_of(point), point.loss);
      table.rows.push_back(
          {number_text(cost_of(point), 3), number_text(point.loss, 5), trial_name(point.trial), grouped_digits(point.rung + 1)});
    }
  }
  return "<h2>Cost against quality</h2><p class=\"dim\">Each stop of a trial: what it had cost until then and its validation loss. The "
         "line "
         "is the Pareto front: nothing costs no more and is better.</p><div class=\"plots\">" +
         render_scatter_chart(points, {.title = "Validation loss",
                                       .unit = {},
                                       .x_label = has_price ? "dollars of the trial" : "machine-hours of the trial",
                                       .lines = {{.points = front, .colour = kBestColour, .name = "Pareto front"}}}) +
         table_html(table) + "</div>";
}

std::string notes_html(const TuneReport& report) {
  std::string html = "<h2>How to read this</h2><ul>";
  for (const std::string& note : report.notes) {
    html += "<li>" + escape_html(note) + "</li>";
  }
  return html + "</ul>";
}

std::string search_html(const TuneReport& report) {
  const auto search = report.head.find("search");
  ReportTable table{.title = "The search", .head = {}, .rows = {}};
  if (search != report.head.end() && search->is_object()) {
    for (const auto& [key, value] : search->items()) {
      if (value.is_array()) {
        for (const auto& item : value) {
          table.rows.push_back({key, item.is_string() ? item.get<std::string>() : item.dump()});
        }
      } else {
        table.rows.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
      }
    }
  }
  table.rows.push_back({"full length", number_text(report.length, 6) + " " + report.unit});
  for (size_t i = 0; i < report.rungs.size(); ++i) {
    table.rows.push_back({fmt::format("rung {}", i + 1),
                          fmt::format("{} trials, {} of the full length", report.rungs[i].num_trials, share_text(report.rungs[i].share))});
  }
  return table_html(table);
}

}  // namespace

std::string render_tune_page(const TuneReport& report, const std::string& best_recipe) {
  std::string body = tune_tiles(report) + best_html(report, best_recipe) + curves_html(report) + trials_html(report) + fields_html(report);
  body += speeds_html(report) + tune_cost_html(report) + notes_html(report) + search_html(report);
  return render_html_page("Hyper-parameter search", body);
}

}  // namespace darkroom
