#include "darkroom/show/measured_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/median.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/feed/stored_run.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/files/paths.h"
#include "json_fields.h"
#include "run_folder.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostSummaryBytes = int64_t{1} << 30;
constexpr const char* kJobSummary = "_summary.json";
constexpr const char* kJobRecord = "_job.json";
constexpr const char* kJobSpeed = "_speed.json";

double number_of(const Json& object, const char* key) { return number_in<double>(object, key).value_or(0); }

/// A positive whole number of the recipe; 0 where it is none.
int64_t recipe_count(const RunFolder& run, const char* section, const char* key) {
  const Json value = run.recipe_field(section, key);
  return value.is_number_integer() ? std::max<int64_t>(0, value.get<int64_t>()) : 0;
}

/// What computed the run, by its last start.
struct RunMachine {
  bool is_cpu = false;
  int64_t ranks = 1;
  int64_t passes = 1;  // Side by side, of all ranks.
};

// As training does it: one pass at a time on a GPU; on processors as many as the recipe says, or, for 0, as fill the cores that a rank has.
// Ranks on processors are taken to share one machine: a start tells the cores of rank 0's alone.
RunMachine machine_of(const RunFolder& run) {
  RunMachine machine;
  const auto starts = run.facts.find("starts");
  if (starts == run.facts.end() || !starts->is_array() || starts->empty() || !starts->back().is_object()) {
    return machine;
  }
  const Json& start = starts->back();
  const auto count = [&](const char* key) {
    const Json value = start.value(key, Json());
    return value.is_number_integer() ? std::max<int64_t>(1, value.get<int64_t>()) : 1;
  };
  machine.is_cpu = text_in(start, "device").starts_with("cpu");
  machine.ranks = count("ranks");
  const int64_t own = recipe_count(run, "runtime", "workers");
  const int64_t filling = std::max<int64_t>(1, count("cores") / (count("threads") * machine.ranks));
  machine.passes = machine.ranks * (!machine.is_cpu ? 1 : own > 0 ? own : filling);
  return machine;
}

/// Seconds of the steps that were logged, one entry a line that has all it needs.
struct LoggedSteps {
  std::vector<double> steps;    // Steps done.
  std::vector<double> totals;   // Of the step that was logged, all its phases.
  std::vector<double> seconds;  // Wall time until then.
};

LoggedSteps logged_steps(const RunMetrics& metrics, int64_t batch) {
  LoggedSteps logged;
  for (size_t i = 0; i < metrics.column("step").size(); ++i) {
    const double rate = metrics.column("images_per_second")[i], seconds = metrics.column("seconds")[i];
    if (rate > 0 && std::isfinite(seconds) && std::isfinite(rate)) {
      logged.steps.push_back(metrics.column("step")[i]);
      logged.totals.push_back(static_cast<double>(batch) / rate);
      logged.seconds.push_back(seconds);
    }
  }
  return logged;
}

// The first step warms caches up: it counts as part of the start where there are others.
double mean_total(const LoggedSteps& logged) {
  const size_t first = logged.totals.size() > 1 ? 1 : 0;
  double sum = 0;
  for (size_t i = first; i < logged.totals.size(); ++i) {
    sum += logged.totals[i];
  }
  return sum / static_cast<double>(logged.totals.size() - first);
}

// Splits what lies between the logged steps' phases: the usual gap is logging's, what is more where checkpoints lie is theirs, however many
// lie between two lines. `last_step` and `last_seconds`: the last checkpoint's, with which a run ends that was not killed before it.
void split_gaps(const LoggedSteps& logged, double last_step, double last_seconds, MeasuredSteps& steps) {
  std::vector<double> usual;
  const bool ends_with_save = last_step >= logged.steps.back();
  double num_saves = ends_with_save ? 1 : 0, saved_seconds = 0, steps_around_saves = 0;
  // Checkpoints behind the steps from one on and before another.
  const auto saves_between = [&](double from, double to) {
    const auto saves_before = [&](double step) { return std::floor((step - 1) / static_cast<double>(steps.save_every)); };
    return saves_before(to) - saves_before(from);
  };
  for (size_t i = 1; i < logged.steps.size(); ++i) {
    const double num_steps = std::max(1.0, logged.steps[i] - logged.steps[i - 1]);
    const double gap = logged.seconds[i] - logged.seconds[i - 1] - num_steps * logged.totals[i];
    if (const double saves = saves_between(logged.steps[i - 1], logged.steps[i]); saves > 0) {
      num_saves += saves;
      saved_seconds += gap;
      steps_around_saves += num_steps;
    } else {
      usual.push_back(gap / num_steps);
    }
  }
  const double num_left = std::max(0.0, last_step - logged.steps.back());  // Which no line tells of.
  if (num_left > 0) {
    num_saves += saves_between(logged.steps.back(), last_step);
  }
  if (ends_with_save) {
    saved_seconds += last_seconds - logged.seconds.back() - num_left * logged.totals.back();
  }
  steps.between_seconds = usual.empty() ? 0 : std::max(0.0, median(usual));
  steps.save_seconds = std::max(0.0, (saved_seconds - (steps_around_saves + num_left) * steps.between_seconds) / std::max(1.0, num_saves));
}

double share_of_update(const RunMetrics& metrics) {
  double all = 0, update = 0;
  for (const auto& [name, milliseconds] : metrics.phase_ms) {
    all += milliseconds;
    update += name == "optimizer" ? milliseconds : 0;
  }
  return all > 0 ? update / all : 0;
}

Result<MeasuredRates> rates_of_run(const RunFolder& run, const std::string& shown) {
  const auto unusable = [&](const char* why) {
    return Status::failed_precondition(fmt::format("nothing can be planned from the run: {}; run:", why), shown);
  };
  if (!run.facts.is_object()) {
    return unusable("it has no run.json, which says its recipe");
  }
  if (run.facts.value("component", Json()) == "vae") {
    return unusable("it trained the autoencoder, and plans are of the U-Net");
  }
  MeasuredSteps steps;
  steps.resolution = recipe_count(run, "data", "resolution");
  steps.batch = recipe_count(run, "batch", "global");
  if (steps.resolution == 0 || steps.batch == 0) {
    return unusable("its run.json lacks data.resolution or batch.global");
  }
  steps.micro = recipe_count(run, "batch", "micro");
  steps.micro = steps.micro > 0 ? std::min(steps.micro, steps.batch) : steps.batch;
  const RunMachine machine = machine_of(run);
  steps.workers = machine.passes;
  const int64_t every = recipe_count(run, "checkpoint", "every_steps");
  steps.save_every = every > 0 ? every : std::numeric_limits<int32_t>::max();  // None: the last step's alone.
  const LoggedSteps logged = logged_steps(run.metrics, steps.batch);
  if (logged.steps.empty()) {
    return unusable("no step with its time was logged");
  }
  const double total = mean_total(logged);
  steps.update_seconds = total * share_of_update(run.metrics);
  steps.pass_seconds = total - steps.update_seconds;
  steps.start_seconds = std::max(0.0, logged.seconds.front() - logged.steps.front() * total);
  split_gaps(logged, number_of(run.facts, "step"), std::max(logged.seconds.back(), number_of(run.facts, "seconds")), steps);
  MeasuredRates rates;
  rates.from = shown;
  const int64_t num_accelerators = machine.is_cpu ? 1 : machine.ranks;
  rates.train = MeasuredRate{.resolution = steps.resolution,
                             .per_second = static_cast<double>(steps.batch) / total / static_cast<double>(num_accelerators)};
  if (machine.ranks > num_accelerators) {
    rates.notes.push_back(fmt::format("the {} ranks of the measured run, on processors, count as one accelerator", machine.ranks));
  }
  rates.steps = steps;
  return rates;
}

Result<Json> read_json(const Location& place) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, place.store->read_small(place.path, kMostSummaryBytes));
  Json json = parse_json<Json>(text);
  return json.is_object() ? Result<Json>(std::move(json)) : Status::corrupt_data("is no JSON object:", place.uri());
}

Result<MeasuredRates> rates_of_job(const Location& job) {
  DARKROOM_ASSIGN_OR_RETURN(const Json record, read_json(job / kJobRecord));
  const Json identity = record.value("identity", Json::object());
  if (!identity.is_object() || identity.value("verb", Json()) != "download") {
    return Status::failed_precondition(
        "the folder of a process job says nothing of its speed; name the file that process wrote as --json-summary (folder):", job.uri());
  }
  DARKROOM_ASSIGN_OR_RETURN(const Json summary, read_json(job / kJobSummary));
  const double rows_in = number_of(summary, "rows_in"), rows_out = number_of(summary, "rows_out");
  if (!(rows_in > 0 && rows_out > 0)) {
    return Status::failed_precondition("no row of the job gave a picture, so nothing can be planned from it:", job.uri());
  }
  double bytes = 0;
  const Json parts = summary.value("parts", Json::array());  // Named: the loop keeps a reference.
  for (const Json& part : parts) {
    bytes += number_of(part, "size_bytes");
  }
  MeasuredRates rates;
  rates.from = job.uri();
  rates.download_success = std::min(1.0, rows_out / rows_in);
  if (bytes > 0) {
    rates.picture_bytes = bytes / rows_out;
  }
  if (const Result<Json> speed = read_json(job / kJobSpeed); speed.is_ok() && number_of(*speed, "seconds") > 0) {
    rates.download = MeasuredRate{.resolution = 0, .per_second = number_of(*speed, "rows") / number_of(*speed, "seconds")};
  } else if (!speed.is_ok() && speed.status().code() != StatusCode::kNotFound) {
    return speed.status();
  }
  return rates;
}

Result<MeasuredRates> rates_of_summary(const Location& file) {
  DARKROOM_ASSIGN_OR_RETURN(const Json summary, read_json(file));
  for (const char* stage : {"download", "process"}) {
    const auto found = summary.find(stage);
    if (found == summary.end() || !found->is_object()) {
      continue;
    }
    const double speed = number_of(*found, "rows_per_second"), rows_in = number_of(*found, "rows_in"),
                 rows_out = number_of(*found, "rows_out");
    if (!(speed > 0 && rows_in > 0 && rows_out > 0)) {
      return Status::failed_precondition("the run of the job that wrote the summary worked on no row, so it measured no speed:",
                                         file.uri());
    }
    MeasuredRates rates;
    rates.from = file.uri();
    if (std::string(stage) == "download") {
      rates.download = MeasuredRate{.resolution = 0, .per_second = speed};
      rates.download_success = std::min(1.0, rows_out / rows_in);
      return rates;
    }
    const auto resolution = static_cast<int64_t>(number_of(*found, "resolution"));
    if (resolution <= 0) {
      return Status::failed_precondition("the summary of process does not say its resolution (an older program wrote it):", file.uri());
    }
    rates.encode = MeasuredRate{.resolution = resolution, .per_second = speed};
    return rates;
  }
  return Status::not_found("no summary of download or process is in the file:", file.uri());
}

// Whether the folder is a run's; metrics lie there as one file or, on a store that cannot append, as parts.
Result<bool> is_run(const Location& place) {
  for (const char* name : {"run.json", "metrics.jsonl"}) {
    DARKROOM_ASSIGN_OR_RETURN(const bool exists, (place / name).exists());
    if (exists) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<MeasuredRates> measured_rates_of_run(FileSystem& files, const std::string& run_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const RunFolder run, read_run_folder(files, run_folder));
  return rates_of_run(run, run.path);
}

Result<MeasuredRates> measured_rates(StoreSet& stores, const std::string& uri, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kRead));
  if (place.name().ends_with(".json")) {
    return rates_of_summary(place);
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool holds_run, is_run(place));
  if (holds_run) {
    if (const auto local = place.store->local_path(place.path)) {
      return measured_rates_of_run(local_files(), *local);
    }
    DARKROOM_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::make());
    const std::string copy = join_path(scratch.path(), place.name());
    DARKROOM_RETURN_IF_ERROR(fetch_run_files(
        place, copy, std::numeric_limits<int64_t>::max(),
        [](const std::string& name) {
          return name == "run.json" || name == "index.json" || name == "recipe.toml" || name == "metrics.jsonl";
        },
        stop));
    auto run = read_run_folder(local_files(), copy);
    return run.is_ok() ? rates_of_run(*run, place.uri()) : run.status().with_context(place.uri());
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool holds_job, (place / kJobSummary).exists());
  if (holds_job) {
    return rates_of_job(place);
  }
  return Status::not_found("no training run (run.json, metrics.jsonl), no download job (_summary.json) and no summary NAME.json is there:",
                           place.uri());
}

}  // namespace darkroom
