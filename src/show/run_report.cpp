#include "darkroom/show/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/io/uri.h"
#include "darkroom/show/line_chart.h"

namespace darkroom {
namespace {

constexpr size_t kMaxSheets = 6;

// Curves in validated colours for both forms of the page; text is never coloured alone: the legend names each curve.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1d1d1f; --dim: #6b6b70; --line: #e3e3e6; --page: #ffffff; --c0: #2a6fdb; --c1: #d1660a; --c2: #2a8a57; --c3: #a03fb0; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececee; --dim: #a0a0a6; --line: #37373c; --page: #17171a; --c0: #6ea2f5; --c1: #f2995c; --c2: #63c491; --c3: #d58be0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.2rem; } .dim { color: var(--dim); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1rem; }
.chart { width: 100%; height: auto; } .chart text { font-size: 12px; fill: var(--dim); } .chart .title { font-size: 14px; fill: var(--ink); }
.chart .grid { stroke: var(--line); } .curve { fill: none; stroke-width: 1.5; }
.curve-0 { stroke: var(--c0); } .curve-1 { stroke: var(--c1); } .curve-2 { stroke: var(--c2); } .curve-3 { stroke: var(--c3); }
.chart .legend-0 { fill: var(--c0); } .chart .legend-1 { fill: var(--c1); } .chart .legend-2 { fill: var(--c2); } .chart .legend-3 { fill: var(--c3); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { padding: .25rem .9rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child { text-align: left; } img { max-width: 100%; height: auto; border: 1px solid var(--line); }
figure { margin: 0 0 1rem; } pre { overflow-x: auto; border: 1px solid var(--line); padding: .8rem; font-size: 13px; }
)css";

using Record = nlohmann::json;

Result<std::vector<Record>> read_metrics(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  std::vector<Record> records;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    Record record =
        Record::parse(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!record.is_object() || !record.contains("step")) {
      return Status::corrupt_data("metrics hold a line that is no object with a step (path, line):", path, records.size() + 1);
    }
    records.push_back(std::move(record));
    begin = end + 1;
  }
  return records;
}

ChartSeries series_of(const std::vector<Record>& records, const std::string& field, const std::string& name) {
  ChartSeries series{name, {}};
  for (const Record& record : records) {
    if (const auto value = record.find(field); value != record.end() && value->is_number()) {
      series.points.emplace_back(record["step"].get<double>(), value->get<double>());
    }
  }
  return series;
}

// Mean over a window of about 2 % of the run: a diffusion loss is mostly the luck of the timesteps.
ChartSeries smoothed(const ChartSeries& series, const std::string& name) {
  ChartSeries result{name, {}};
  const size_t window = std::max<size_t>(1, series.points.size() / 50);
  double sum = 0;
  for (size_t i = 0; i < series.points.size(); ++i) {
    sum += series.points[i].second;
    if (i >= window) {
      sum -= series.points[i - window].second;
    }
    result.points.emplace_back(series.points[i].first, sum / static_cast<double>(std::min(i + 1, window)));
  }
  return result;
}

std::string charts_html(const std::vector<Record>& records) {
  const ChartSeries loss = series_of(records, "loss", "every step");
  std::vector<ChartSeries> losses = {loss, smoothed(loss, "mean over 2 % of the run")};
  if (ChartSeries validation = series_of(records, "validation_loss", "validation"); !validation.points.empty()) {
    losses.push_back(std::move(validation));
  }
  std::string html = "<div class=\"charts\">";
  html += render_line_chart(losses, {.title = "loss", .x_label = "step", .log_y = true});
  html += render_line_chart({series_of(records, "grad_norm", "gradient norm")},
                            {.title = "gradient norm before clipping", .x_label = "step", .log_y = true});
  html += render_line_chart({series_of(records, "lr", "lr")}, {.title = "learning rate", .x_label = "step"});
  html += render_line_chart({smoothed(series_of(records, "images_per_second", "img/s"), "img/s")},
                            {.title = "pictures a second", .x_label = "step"});
  return html + "</div>";
}

// Mean milliseconds a step of each phase and its share.
std::string phases_html(const std::vector<Record>& records) {
  std::map<std::string, double> sums;
  double count = 0;
  for (const Record& record : records) {
    if (const auto phases = record.find("ms"); phases != record.end() && phases->is_object()) {
      count += 1;
      for (const auto& [name, value] : phases->items()) {
        sums[name] += value.get<double>();
      }
    }
  }
  double total = 0;
  for (const auto& [name, sum] : sums) {
    total += sum;
  }
  if (total <= 0) {
    return {};
  }
  std::string html = "<h2>Where a step's time goes</h2><table><tr><th>phase</th><th>ms a step</th><th>share</th></tr>";
  for (const auto& [name, sum] : sums) {
    html += fmt::format("<tr><td>{}</td><td>{:.1f}</td><td>{:.1f} %</td></tr>", escape_html(name), sum / count, 100 * sum / total);
  }
  return html + "</table>";
}

std::string base64(std::string_view bytes) {
  constexpr const char* kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t word = 0;
    for (size_t i = 0; i < 3; ++i) {
      word = word << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += at + i > bytes.size() ? '=' : kAlphabet[word >> (18 - 6 * i) & 63U];
    }
  }
  return text;
}

Result<std::string> samples_html(FileSystem& files, const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const bool has_samples, files.exists(folder));
  if (!has_samples) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> steps, files.list(folder));
  std::string html;
  size_t num_sheets = 0;
  for (size_t index = steps.size(); index-- > 0 && num_sheets < kMaxSheets;) {
    const std::string sheet = steps[index].path + "/sheet.png";
    DARKROOM_ASSIGN_OR_RETURN(const bool has_sheet, files.exists(sheet));
    if (!has_sheet) {
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::string png, read_file(files, sheet));
    const std::string name = steps[index].path.substr(steps[index].path.rfind('/') + 1);
    html += fmt::format(
        "<figure><img alt=\"samples of {0}\" src=\"data:image/png;base64,{1}\"><figcaption class=\"dim\">{0}</figcaption></figure>",
        escape_html(name), base64(png));
    ++num_sheets;
  }
  return html.empty() ? html : "<h2>Samples, newest first</h2>" + html;
}

std::string stage_row(const std::string& name, const Record& stage) {
  std::string errors;
  for (const auto& [code, count] : stage.value("rows_by_error", Record::object()).items()) {
    errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", code, count.dump());
  }
  return fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td></tr>", escape_html(name),
                     stage.value("rows_in", int64_t{0}), stage.value("rows_out", int64_t{0}), escape_html(errors.empty() ? "none" : errors),
                     stage.value("seconds", 0.0), stage.value("rows_per_second", 0.0));
}

// The summary that the job which made the dataset left beside its shards.
Result<std::string> dataset_html(FileSystem& files, const std::string& data_uri) {
  if (data_uri.empty()) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string folder, local_path(data_uri));
  const std::string path = folder + "/_summary.json";
  DARKROOM_ASSIGN_OR_RETURN(const bool has_summary, files.exists(path));
  if (!has_summary) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  const Record summary = Record::parse(text, nullptr, false);
  if (!summary.is_object()) {
    return Status::corrupt_data("the summary is no JSON object; delete it, the next run of the job writes it anew:", path);
  }
  return "<h2>Dataset</h2><table><tr><th>folder</th><th>rows in</th><th>rows out</th><th>rows by "
         "error</th><th>seconds</th><th>rows/s</th></tr>" +
         stage_row(folder, summary) + "</table>";
}

Result<std::string> recipe_html(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const bool has_recipe, files.exists(path));
  if (!has_recipe) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string recipe, read_file(files, path));
  return "<h2>Recipe</h2><pre>" + escape_html(recipe) + "</pre>";
}

std::string headline(const std::vector<Record>& records) {
  if (records.empty()) {
    return "<p class=\"dim\">no step was logged yet</p>";
  }
  const Record& last = records.back();
  return fmt::format("<p class=\"dim\">step {} &middot; {} samples &middot; {} logged lines</p>", last["step"].dump(),
                     last.value("samples", int64_t{0}), records.size());
}

}  // namespace

Status write_run_report(FileSystem& files, const std::string& run_folder, const std::string& data_uri) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<Record> records, read_metrics(files, run_folder + "/metrics.jsonl"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string samples, samples_html(files, run_folder + "/samples"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string dataset, dataset_html(files, data_uri));
  DARKROOM_ASSIGN_OR_RETURN(const std::string recipe, recipe_html(files, run_folder + "/recipe.toml"));
  const std::string title = escape_html(run_folder.substr(run_folder.rfind('/') + 1));
  const std::string page = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{0}: "
      "training run</title><style>{1}</style></head><body><h1>{0}</h1>{2}{3}{4}{5}{6}{7}</body></html>\n",
      title, kStyle, headline(records), charts_html(records), samples, phases_html(records), dataset, recipe);
  return write_file_atomic(files, run_folder + "/report.html", page);
}

}  // namespace darkroom
