#include "darkroom/show/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cell_text.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/feed/stored_run.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"
#include "darkroom/stores/stores.h"
#include "report_table.h"
#include "run_charts.h"
#include "run_folder.h"
#include "run_samples.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

std::string tile(const std::string& label, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><span>{}</span></div>", escape_html(label), escape_html(value),
                     escape_html(note));
}

std::string throughput_note(const RunFigures& figures) {
  const auto scaled = figures.world_scaled_steps_per_second();
  return scaled ? fmt::format("pictures/s of all {} ranks, the median; {} steps/s, {} it/s world-scaled", grouped_digits(*figures.ranks),
                              number_text(*figures.steps_per_second, 3), number_text(*scaled, 3))
                : "pictures/s, the median";
}

std::string tiles_html(const RunFigures& figures) {
  std::string html = "<div class=\"tiles\">";
  html += tile("steps", grouped_digits(figures.step), figures.max_steps ? "of " + grouped_digits(*figures.max_steps) : "done");
  if (figures.loss_last) {
    html += tile("loss, last lines", number_text(*figures.loss_last), "first lines: " + number_text(*figures.loss_first));
  }
  if (figures.validation_loss) {
    html += tile("validation loss", number_text(*figures.validation_loss), "the last one");
  }
  if (figures.samples) {
    const bool has_epochs = figures.rows && *figures.rows > 0;
    html += tile("pictures seen", grouped_digits(*figures.samples),
                 has_epochs ? fmt::format("{} epochs of {}",
                                          number_text(static_cast<double>(*figures.samples) / static_cast<double>(*figures.rows), 3),
                                          grouped_digits(*figures.rows))
                            : "");
  }
  if (figures.images_per_second) {
    html += tile("throughput", number_text(*figures.images_per_second, 3), throughput_note(figures));
  }
  if (figures.tflops) {
    const std::string share = figures.mfu ? "; " + mfu_text(*figures.mfu) + " of the peak (MFU)" : "";
    html += tile("computing", number_text(*figures.tflops, 3) + " TFLOP/s", "the median" + share);
  }
  if (figures.peak_memory_bytes) {
    html += tile("peak memory", bytes_text(*figures.peak_memory_bytes), "of rank 0");
  }
  if (figures.seconds) {
    html += tile("wall time", duration_text(*figures.seconds),
                 figures.num_starts > 1 ? fmt::format("in {} starts", figures.num_starts) : "in one start");
  }
  if (figures.parameters) {
    html += tile("parameters", count_text(*figures.parameters), figures.component);
  }
  return html + "</div>";
}

// What was trained, how and where, in a sentence or two below the heading.
std::string subtitle_html(const RunFolder& run, const RunFigures& figures) {
  std::string text;
  for (const auto& [name, value] : run_facts_rows(run)) {
    if (name == "trained part" || name == "recipe") {
      text += (text.empty() ? "" : " &middot; ") + escape_html(value);
    }
  }
  for (const std::string& machine : figures.machines) {
    text += "<br>" + escape_html(machine);
  }
  return "<p class=\"dim\">" + (text.empty() ? "a training run" : text) + "</p>";
}

// Mean milliseconds a step of each phase and its share, those that took none left out.
std::string phases_html(const RunFolder& run) {
  const auto& sums = run.metrics.phase_ms;
  const auto count = static_cast<double>(run.metrics.num_timed_lines);
  double total = 0;
  for (const auto& [name, sum] : sums) {
    total += sum;
  }
  if (total <= 0) {
    return {};
  }
  std::string html =
      "<h2>Where a step's time goes</h2><table><tr><th>phase</th><th class=\"n\">ms a step</th><th "
      "class=\"n\">share</th><th></th></tr>";
  for (const auto& [name, sum] : sums) {
    if (sum <= 0) {
      continue;
    }
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f} %</td><td><i class=\"bar\" style=\"width: "
        "{:.1f}rem\"></i></td></tr>",
        escape_html(name), sum / count, 100 * sum / total, 12 * sum / total);
  }
  return html + "</table>";
}

// What the wall time of all starts went into.
std::string spendings_html(const RunFolder& run) {
  const auto spendings = run_spendings(run);
  double total = 0;
  for (const auto& [name, seconds] : spendings) {
    total += seconds;
  }
  if (total <= 0) {
    return {};
  }
  std::string html =
      "<h2>Where the wall time went</h2><table><tr><th></th><th class=\"n\">time</th><th class=\"n\">share</th><th></th></tr>";
  for (const auto& [name, seconds] : spendings) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1f} %</td><td><i class=\"bar\" style=\"width: "
        "{:.1f}rem\"></i></td></tr>",
        escape_html(name), duration_text(seconds), 100 * seconds / total, 12 * seconds / total);
  }
  return html + "</table>";
}

// The summary that the job which made the dataset left in its folder; null without one.
Result<Json> read_job_summary(FileSystem& files, const std::string& data_uri) {
  if (data_uri.empty()) {
    return Json();
  }
  const auto folder = local_path(data_uri);
  if (!folder.is_ok()) {
    return Json();  // A dataset elsewhere is not looked at.
  }
  const std::string path = join_path(*folder, "_summary.json");
  const auto has_summary = files.exists(path);
  if (!has_summary.is_ok() || !*has_summary) {
    return Json();  // A file or a pattern has none beside it, nor has a folder that another program wrote.
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  Json summary = parse_json<Json>(text);
  if (!summary.is_object()) {
    return Status::corrupt_data("the summary is no JSON object; delete it, the next run of the job writes it anew:", path);
  }
  return summary;
}

std::string errors_text(const Json& summary) {
  const Json rows_by_error = summary.value("rows_by_error", Json::object());  // Named: items() keeps a reference.
  std::string errors;
  for (const auto& [code, count] : rows_by_error.items()) {
    errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", clipped_text(code, 60),
                          count.is_number_integer() ? grouped_digits(count.get<int64_t>()) : count.dump());
  }
  return errors.empty() ? "none" : errors;
}

Result<std::string> dataset_html(FileSystem& files, const RunFolder& run) {
  ReportTable table{.title = "Dataset", .head = {}, .rows = {}};
  if (const std::string uri = run.dataset(); !uri.empty()) {
    table.rows.push_back({"folder", clipped_text(uri, 400)});
  }
  if (run.index) {
    table.rows.push_back({"rows trained on", grouped_digits(run.index->num_rows())});
    table.rows.push_back({"parts", grouped_digits(static_cast<int64_t>(run.index->parts().size()))});
  }
  DARKROOM_ASSIGN_OR_RETURN(const Json summary, read_job_summary(files, run.dataset()));
  for (const auto& [name, key] : {std::pair("rows that its job read", "rows_in"), std::pair("rows that it wrote", "rows_out")}) {
    if (summary.is_object() && summary.contains(key) && summary[key].is_number_integer()) {
      table.rows.push_back({name, grouped_digits(summary[key].get<int64_t>())});
    }
  }
  if (summary.is_object()) {
    table.rows.push_back({"rows by error", errors_text(summary)});
  }
  return table.rows.empty() ? std::string() : table_html(table);
}

std::string starts_html(const RunFolder& run) {
  if (!run.facts.is_object() || !run.facts.contains("starts") || !run.facts["starts"].is_array()) {
    return {};
  }
  ReportTable table{
      .title = "Starts", .head = {"from step", "time (UTC)", "darkroom", "device", "processor", "cores", "threads", "workers"}, .rows = {}};
  const char* const fields[] = {"step", "started", "darkroom", "device", "processor", "cores", "threads", "workers"};
  for (const Json& start : run.facts["starts"]) {
    auto& row = table.rows.emplace_back();
    for (const char* field : fields) {
      const Json value = start.is_object() ? start.value(field, Json()) : Json();
      const bool is_automatic = std::string_view(field) == "workers" && value == 0;  // As in a recipe.
      row.push_back(is_automatic                ? "one a core"
                    : value.is_number_integer() ? grouped_digits(value.get<int64_t>())
                    : value.is_string()         ? clipped_text(value.get<std::string>(), 80)
                                                : "-");
    }
  }
  return table_html(table);
}

// Starts that encoders on other machines fed: which side waited.
std::string online_html(const RunFolder& run) {
  ReportTable table{
      .title = "Encoders on other machines",
      .head = {"from step", "trainer waited", "of", "encoders", "idle", "of", "trainer rows/s", "rows/s of an encoder", "would match"},
      .rows = {}};
  const Json starts = run.facts.is_object() ? run.facts.value("starts", Json()) : Json();
  for (const Json& start : starts.is_array() ? starts : Json::array()) {
    const Json online = start.is_object() ? start.value("online", Json()) : Json();
    const auto number = [](const Json& of, const char* name, auto text) -> std::string {
      const Json value = of.is_object() ? of.value(name, Json()) : Json();
      return value.is_number() && value.get<double>() >= 0 ? text(std::min(value.get<double>(), 9e15)) : "-";
    };
    const auto whole = [](double value) { return grouped_digits(static_cast<int64_t>(value)); };
    const auto rate = [](double value) { return value > 0 ? number_text(value, 3) : "-"; };  // 0: too little was encoded to say.
    if (online.is_object()) {
      table.rows.push_back({number(start, "step", whole), number(online, "trainer_wait_seconds", duration_text),
                            number(online, "trainer_seconds", duration_text), number(online, "encoders", whole),
                            number(online, "encoder_idle_seconds", duration_text), number(online, "encoder_seconds", duration_text),
                            number(online, "trainer_rows_per_second", rate), number(online, "rows_per_second_of_an_encoder", rate),
                            number(online, "encoders_to_match", rate)});
    }
  }
  return table.rows.empty() ? std::string() : table_html(table);
}

std::string recipe_html(const RunFolder& run) {
  return run.recipe_toml.empty() ? std::string()
                                 : "<h2>Recipe</h2><details><summary>every field, as recipe.toml</summary><pre>" +
                                       escape_html(run.recipe_toml) + "</pre></details>";
}

// `other` is null for a run alone.
Result<std::string> render(FileSystem& files, const RunFolder& run, const RunFolder* other) {
  const RunFigures figures = figures_of(run);
  std::string body = subtitle_html(run, figures) + tiles_html(figures);
  body += run.metrics.num_lines == 0 ? "<p class=\"dim\">No step was logged yet.</p>" : "";
  body += run_charts_html(run, other);
  if (other != nullptr) {
    ReportTable comparison = comparison_table(run, *other);
    comparison.title = "Comparison";
    body += table_html(comparison);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string samples, run_samples_html(files, run));
  DARKROOM_ASSIGN_OR_RETURN(const std::string dataset, dataset_html(files, run));
  body += samples + phases_html(run) + spendings_html(run) + dataset + starts_html(run) + online_html(run) + recipe_html(run);
  std::string title = run.name;
  if (other != nullptr) {
    const auto [name, other_name] = run_names(run, *other);
    title = name + " beside " + other_name;
  }
  return render_html_page(title, body, chart_script());
}

}  // namespace

Result<std::string> render_run_report(FileSystem& files, const std::string& run_folder, const std::string& compare_with) {
  DARKROOM_ASSIGN_OR_RETURN(const RunFolder run, read_run_folder(files, run_folder));
  if (compare_with.empty()) {
    return render(files, run, nullptr);
  }
  DARKROOM_ASSIGN_OR_RETURN(const RunFolder other, read_run_folder(files, compare_with));
  return render(files, run, &other);
}

Status write_run_report(StoreSet& stores, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const Location run, stores.resolve(uri, Access::kWrite));
  if (const auto local = run.store->local_path(run.path)) {
    return write_run_report(local_files(), *local);
  }
  DARKROOM_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::make());
  const std::string copy = join_path(scratch.path(), run.name());
  DARKROOM_RETURN_IF_ERROR(fetch_run_files(run, copy, std::numeric_limits<int64_t>::max()));
  const auto page = render_run_report(local_files(), copy);
  DARKROOM_RETURN_IF_ERROR(page.is_ok() ? Status::ok() : page.status().with_context("writing the report of " + run.uri()));
  return run.store->replace_small((run / "report.html").path, *page);
}

Status write_run_report(FileSystem& files, const std::string& run_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const RunFolder run, read_run_folder(files, run_folder));
  DARKROOM_ASSIGN_OR_RETURN(const std::string page, render(files, run, nullptr));
  return write_file_atomic(files, join_path(run.path, "report.html"), page);
}

}  // namespace darkroom
