#include "run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "cell_text.h"
#include "darkroom/core/median.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/utf8.h"
#include "darkroom/files/paths.h"
#include "darkroom/show/line_chart.h"
#include "json_fields.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kMeanLines = 50;  // As training's own summary.

Result<std::string> read_if_there(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  return exists ? read_file(files, path) : Result<std::string>(std::string());
}

std::optional<double> mean_of(const std::vector<double>& values, size_t begin, size_t end) {
  if (begin >= end) {
    return std::nullopt;
  }
  double sum = 0;
  for (size_t i = begin; i < end; ++i) {
    sum += values[i];
  }
  return sum / static_cast<double>(end - begin);
}

std::string machine_of(const Json& start) {
  std::string text = text_in(start, "processor");
  if (const auto cores = number_in<int64_t>(start, "cores")) {
    text += fmt::format(", {} core{}", *cores, *cores == 1 ? "" : "s");
  }
  if (const auto bytes = number_in<int64_t>(start, "memory_bytes"); bytes && *bytes > 0) {
    text += ", " + bytes_text(*bytes);
  }
  return clipped_text(text, 200);
}

void add_starts(const Json& facts, RunFigures& figures) {
  const auto starts = facts.find("starts");
  if (starts == facts.end() || !starts->is_array()) {
    return;
  }
  figures.num_starts = static_cast<int64_t>(starts->size());
  for (const Json& start : *starts) {
    const std::string machine = machine_of(start);
    if (!machine.empty() && std::find(figures.machines.begin(), figures.machines.end(), machine) == figures.machines.end()) {
      figures.machines.push_back(machine);
    }
  }
}

// Lines do not say which start wrote them, so ranks that changed are not told.
std::optional<int64_t> ranks_of_all_starts(const Json& facts) {
  const Json starts = facts.value("starts", Json());
  std::optional<int64_t> ranks;
  for (const Json& start : starts.is_array() ? starts : Json::array()) {
    const auto here = number_in<int64_t>(start, "ranks");
    if (!here || *here < 1 || (ranks && *ranks != *here)) {
      return std::nullopt;
    }
    ranks = here;
  }
  return ranks;
}

std::string recipe_value_text(const Json& value) {
  if (value.is_null()) {
    return "-";
  }
  if (value.is_number_float()) {
    return number_text(value.get<double>(), 6);
  }
  if (value.is_number_integer()) {
    return grouped_digits(value.get<int64_t>());
  }
  return clipped_text(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace), 120);
}

// What it computed in; "" where nobody says.
std::string precision_of_last_start(const Json& facts) {
  const auto starts = facts.is_object() ? facts.find("starts") : facts.end();
  const bool has_starts = facts.is_object() && starts != facts.end() && starts->is_array() && !starts->empty();
  return has_starts ? text_in(starts->back(), "precision") : "";
}

std::string essentials(const RunFolder& run) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto field = [&](const char* section, const char* key) { return run.recipe_field(section, key); };
  if (const Json value = field("data", "resolution"); !value.is_null()) {
    add(recipe_value_text(value) + " px");
  }
  if (const Json value = field("objective", "kind"); value == "diffusion") {
    add(recipe_value_text(field("objective", "prediction")) + " prediction");
  }
  if (const Json value = field("batch", "global"); !value.is_null()) {
    add("batch of " + recipe_value_text(value));
  }
  if (const Json value = field("optimizer", "lr"); !value.is_null()) {
    add("AdamW at " + recipe_value_text(value));
  }
  if (const Json value = field("schedule", "kind"); !value.is_null()) {
    add(recipe_value_text(value) + " schedule");
  }
  if (const Json value = field("runtime", "precision"); !value.is_null()) {
    const std::string computed = precision_of_last_start(run.facts);
    add(value == "auto" && !computed.empty() ? clipped_text(computed, 40) : recipe_value_text(value));
  }
  return text;
}

// The last line of goodput.jsonl that can be read: each has the sums so far, and a torn one may follow.
Result<Json> read_last_spendings(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_if_there(files, path));
  std::string_view lines = text;
  while (!lines.empty()) {
    const size_t end = lines.rfind('\n');
    if (end == std::string_view::npos) {
      break;
    }
    lines = lines.substr(0, end);
    const Json line = parse_json<Json>(lines.substr(lines.rfind('\n') + 1));
    if (line.is_object()) {
      return line;
    }
  }
  return Json();
}

std::string goodput_text(const RunFolder& run) {
  const auto spendings = run_spendings(run);
  double wall = 0;
  for (const auto& [name, seconds] : spendings) {
    wall += name == "away" ? 0 : seconds;
  }
  if (spendings.empty() || wall <= 0) {
    return {};
  }
  // A run that was killed before its first checkpoint has none, and the rest alone would read as if it were good.
  std::string text = spendings.front().first == "training" ? "" : "training 0.0 %";
  for (const auto& [name, seconds] : spendings) {
    if (name != "away") {
      text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", name, 100 * seconds / wall);
    }
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, double>> run_spendings(const RunFolder& run) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"training", "training"}, {"data_wait", "data wait"}, {"saving", "saving"}, {"looking", "validation and previews"},
      {"lost", "lost"},         {"starting", "starting"},   {"away", "away"}};
  std::vector<std::pair<std::string, double>> spendings;
  for (const auto& [key, name] : kNames) {
    const auto seconds = number_in<double>(run.goodput, key);
    if (seconds && *seconds > 0) {
      spendings.emplace_back(name, *seconds);
    }
  }
  return spendings;
}

Json RunFolder::recipe_field(const char* section, const char* key) const {
  const auto recipe = facts.is_object() ? facts.find("recipe") : facts.end();
  if (!facts.is_object() || recipe == facts.end() || !recipe->is_object() || !recipe->contains(section) ||
      !(*recipe)[section].is_object()) {
    return {};
  }
  return (*recipe)[section].value(key, Json());
}

std::string RunFolder::dataset() const {
  for (const char* key : {"path", "raw_path"}) {
    if (const Json uri = recipe_field("data", key); uri.is_string() && !uri.get_ref<const std::string&>().empty()) {
      return uri.get<std::string>();
    }
  }
  return {};
}

Result<RunFolder> read_run_folder(FileSystem& files, const std::string& path) {
  RunFolder run;
  run.path = without_trailing_slashes(path);
  run.name = clipped_text(file_name(run.path), 120);
  DARKROOM_ASSIGN_OR_RETURN(run.metrics, read_run_metrics(files, join_path(run.path, "metrics.jsonl")));
  DARKROOM_ASSIGN_OR_RETURN(const std::string facts, read_if_there(files, join_path(run.path, "run.json")));
  if (!facts.empty()) {
    run.facts = parse_json<Json>(facts);
    if (!run.facts.is_object()) {
      return Status::corrupt_data("the facts of the run are no JSON object (path):", join_path(run.path, "run.json"));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(run.goodput, read_last_spendings(files, join_path(run.path, "goodput.jsonl")));
  DARKROOM_ASSIGN_OR_RETURN(const std::string index, read_if_there(files, join_path(run.path, "index.json")));
  if (!index.empty()) {
    auto parsed = DatasetIndex::from_json(index);
    if (!parsed.is_ok()) {
      return parsed.status().with_context(join_path(run.path, "index.json"));
    }
    run.index = std::move(parsed).value();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string recipe, read_if_there(files, join_path(run.path, "recipe.toml")));
  run.recipe_toml = replace_invalid_utf8(recipe).first;
  return run;
}

RunFigures figures_of(const RunFolder& run) {
  RunFigures figures;
  const Json& last = run.metrics.last;
  figures.step = number_in<int64_t>(last, "step").value_or(0);
  figures.samples = number_in<int64_t>(last, "samples");
  figures.seconds = number_in<double>(last, "seconds");
  if (const Json steps = run.recipe_field("schedule", "max_steps"); steps.is_number_integer()) {
    figures.max_steps = steps.get<int64_t>();
  }
  if (run.index) {
    figures.rows = run.index->num_rows();
  }
  const std::vector<double> losses = run.metrics.values_of("loss");
  const size_t num_lines = std::min(kMeanLines, (losses.size() + 1) / 2);
  figures.loss_first = mean_of(losses, 0, num_lines);
  figures.loss_last = mean_of(losses, losses.size() - num_lines, losses.size());
  if (const auto scores = run.metrics.values_of("validation_loss"); !scores.empty()) {
    figures.validation_loss = scores.back();
  }
  for (const auto& [field, figure] :
       {std::pair("images_per_second", &figures.images_per_second), std::pair("tflops", &figures.tflops), std::pair("mfu", &figures.mfu)}) {
    if (auto values = run.metrics.values_of(field); !values.empty()) {
      *figure = median(std::move(values));
    }
  }
  if (const Json batch = run.recipe_field("batch", "global"); figures.images_per_second && batch.is_number_integer() && batch > 0) {
    figures.steps_per_second = *figures.images_per_second / batch.get<double>();
  }
  if (const auto peaks = run.metrics.values_of("peak_memory_bytes"); !peaks.empty()) {
    constexpr double kMostBytes = 1e18;  // Whatever stands there.
    figures.peak_memory_bytes = static_cast<int64_t>(std::clamp(*std::max_element(peaks.begin(), peaks.end()), 0.0, kMostBytes));
  }
  if (run.facts.is_object()) {
    figures.parameters = number_in<int64_t>(run.facts, "parameters");
    figures.ranks = ranks_of_all_starts(run.facts);
    // Of the last save, which follows the last logged line: its previews and its checkpoint are in it.
    figures.seconds = std::max(figures.seconds, number_in<double>(run.facts, "seconds"));
    const std::string component = text_in(run.facts, "component");
    figures.component = component == "unet" ? "U-Net" : component == "vae" ? "autoencoder" : clipped_text(component, 40);
    add_starts(run.facts, figures);
  }
  return figures;
}

std::optional<double> RunFigures::world_scaled_steps_per_second() const {
  const bool is_known = steps_per_second && ranks && *ranks > 1;
  return is_known ? std::optional(*steps_per_second * static_cast<double>(*ranks)) : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> run_facts_rows(const RunFolder& run) {
  const RunFigures figures = figures_of(run);
  std::vector<std::pair<std::string, std::string>> rows;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      rows.emplace_back(name, value);
    }
  };
  const auto number = [](const auto& value) { return value ? number_text(static_cast<double>(*value)) : std::string(); };
  add("trained part", figures.component);
  add("parameters", figures.parameters ? grouped_digits(*figures.parameters) : "");
  add("recipe", essentials(run));
  add("steps", figures.max_steps ? fmt::format("{} of {}", grouped_digits(figures.step), grouped_digits(*figures.max_steps))
                                 : grouped_digits(figures.step));
  add("pictures seen", figures.samples ? grouped_digits(*figures.samples) : "");
  add("rows trained on", figures.rows ? grouped_digits(*figures.rows) : "");
  add("loss, first lines", number(figures.loss_first));
  add("loss, last lines", number(figures.loss_last));
  add("validation loss", number(figures.validation_loss));
  add("ranks", figures.ranks ? grouped_digits(*figures.ranks) : "");
  add("pictures/s, median", number(figures.images_per_second));
  add("optimizer steps/s, median", number(figures.steps_per_second));
  add("it/s, world-scaled: steps/s x ranks", number(figures.world_scaled_steps_per_second()));
  add("TFLOP/s, median", number(figures.tflops));
  add("share of the peak (MFU), median", figures.mfu ? mfu_text(*figures.mfu) : "");
  add("peak memory of rank 0", figures.peak_memory_bytes ? bytes_text(*figures.peak_memory_bytes) : "");
  add("wall time", figures.seconds ? duration_text(*figures.seconds) : "");
  add("goodput", goodput_text(run));
  add("starts", figures.num_starts > 0 ? grouped_digits(figures.num_starts) : "");
  for (const std::string& machine : figures.machines) {
    add("machine", machine);
  }
  return rows;
}

std::string mfu_text(double share) { return number_text(100 * share, 3) + " %"; }

ReportTable comparison_table(const RunFolder& run, const RunFolder& other) {
  const auto [name, other_name] = run_names(run, other);
  ReportTable table{.title = "comparison", .head = {"", name, other_name}, .rows = {}};
  const auto add_rows = [&](std::vector<std::pair<std::string, std::string>> left, std::vector<std::pair<std::string, std::string>> right) {
    for (const auto& [field, value] : left) {
      const auto same = std::find_if(right.begin(), right.end(), [&](const auto& row) { return row.first == field; });
      table.rows.push_back({field, value, same == right.end() ? "-" : same->second});
      if (same != right.end()) {
        right.erase(same);
      }
    }
    for (const auto& [field, value] : right) {
      table.rows.push_back({field, "-", value});
    }
  };
  add_rows(run_facts_rows(run), run_facts_rows(other));
  const auto recipe_of = [](const RunFolder& one) {
    const Json recipe = one.facts.is_object() ? one.facts.value("recipe", Json()) : Json();
    return recipe.is_object() ? recipe : Json::object();
  };
  const Json recipe = recipe_of(run), other_recipe = recipe_of(other);
  const Json fields = recipe.flatten();
  Json all = other_recipe.flatten();
  all.update(fields);
  for (const auto& [pointer, value] : all.items()) {
    if (pointer.empty()) {
      continue;  // Of a run without a recipe.
    }
    const Json::json_pointer place(pointer);
    const Json left = recipe.contains(place) ? recipe[place] : Json();
    const Json right = other_recipe.contains(place) ? other_recipe[place] : Json();
    if (left != right) {
      std::string field = pointer.substr(1);
      std::replace(field.begin(), field.end(), '/', '.');
      table.rows.push_back({field, recipe_value_text(left), recipe_value_text(right)});
    }
  }
  return table;
}

std::pair<std::string, std::string> run_names(const RunFolder& run, const RunFolder& other) {
  if (run.name != other.name) {
    return {run.name, other.name};
  }
  return {clipped_text(run.path, 200), clipped_text(other.path, 200)};
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (seconds < 59.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  if (whole < 3600) {
    return fmt::format("{} min {} s", whole / 60, whole % 60);
  }
  const int64_t minutes = (whole + 30) / 60;
  return minutes < 48 * 60 ? fmt::format("{} h {} min", minutes / 60, minutes % 60)
                           : fmt::format("{} days {} h", minutes / 1440, minutes / 60 % 24);
}

std::string count_text(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 999'500'000) {
    return fmt::format("{:.3g} billion", value / 1e9);
  }
  if (count >= 999'500) {
    return fmt::format("{:.3g} million", value / 1e6);
  }
  return grouped_digits(count);
}

}  // namespace darkroom
