#include "darkroom/show/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/data/row_columns.h"
#include "darkroom/files/paths.h"
#include "darkroom/io/uri.h"
#include "darkroom/show/html_page.h"
#include "darkroom/show/line_chart.h"
#include "metrics_lines.h"

namespace darkroom {
namespace {

constexpr size_t kMaxSheets = 6;

using Record = nlohmann::json;

ChartSeries series_of(const std::vector<Record>& records, const std::string& field, const std::string& name) {
  ChartSeries series{.name = name, .points = {}};
  for (const Record& record : records) {
    if (const auto value = record.find(field); value != record.end() && value->is_number()) {
      series.points.emplace_back(record["step"].get<double>(), value->get<double>());
    }
  }
  return series;
}

// Mean over a window of about 2 % of the run: a diffusion loss is mostly the luck of the timesteps.
ChartSeries smoothed(const ChartSeries& series, const std::string& name) {
  ChartSeries result{.name = name, .points = {}};
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
  ChartSeries loss = series_of(records, "loss", "every step");
  loss.is_faint = true;
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
        sums[name] += value.is_number() ? value.get<double>() : 0;
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
    const std::string name = file_name(steps[index].path);
    html += fmt::format("<figure><img alt=\"samples of {0}\" src=\"{1}\"><figcaption class=\"dim\">{0}</figcaption></figure>",
                        escape_html(name), png_data_url(png));
    ++num_sheets;
  }
  return html.empty() ? html : "<h2>Samples, newest first</h2><div class=\"sheets\">" + html + "</div>";
}

double number_of(const Record& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_number() ? value->get<double>() : 0;
}

std::string stage_row(const std::string& name, const Record& stage) {
  std::string errors;
  const Record rows_by_error = stage.value("rows_by_error", Record::object());  // Named: items() keeps a reference.
  for (const auto& [code, count] : rows_by_error.items()) {
    errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", code, count.dump());
  }
  return fmt::format("<tr><td>{}</td><td>{:.0f}</td><td>{:.0f}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td></tr>", escape_html(name),
                     number_of(stage, "rows_in"), number_of(stage, "rows_out"), escape_html(errors.empty() ? "none" : errors),
                     number_of(stage, "seconds"), number_of(stage, "rows_per_second"));
}

// The summary that the job which made the dataset left beside its shards.
Result<std::string> dataset_html(FileSystem& files, const std::string& data_uri) {
  if (data_uri.empty()) {
    return std::string();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string folder, local_path(data_uri));
  const std::string path = join_path(folder, "_summary.json");
  const auto has_summary = files.exists(path);
  if (!has_summary.is_ok() || !*has_summary) {
    return std::string();  // A file or a pattern has none beside it, nor has a folder that another program wrote.
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
  return "<h2>Recipe</h2><pre>" + escape_html(replace_invalid_utf8(recipe).first) + "</pre>";
}

std::string headline(const std::vector<Record>& records) {
  if (records.empty()) {
    return "<p class=\"dim\">no step was logged yet</p>";
  }
  const Record& last = records.back();
  return fmt::format("<p class=\"dim\">step {} &middot; {:.0f} samples &middot; {} logged lines</p>", last["step"].dump(),
                     number_of(last, "samples"), records.size());
}

}  // namespace

Status write_run_report(FileSystem& files, const std::string& run_folder, const std::string& data_uri) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<Record> records, read_metrics_lines(files, run_folder + "/metrics.jsonl"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string samples, samples_html(files, run_folder + "/samples"));
  DARKROOM_ASSIGN_OR_RETURN(const std::string dataset, dataset_html(files, data_uri));
  DARKROOM_ASSIGN_OR_RETURN(const std::string recipe, recipe_html(files, run_folder + "/recipe.toml"));
  const std::string page =
      render_html_page(file_name(run_folder), headline(records) + charts_html(records) + samples + phases_html(records) + dataset + recipe);
  return write_file_atomic(files, run_folder + "/report.html", page);
}

}  // namespace darkroom
