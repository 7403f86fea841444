#include "search.h"

#include <fmt/format.h>

#include <algorithm>

#include "darkroom/core/log.h"
#include "darkroom/files/folder_lock.h"
#include "darkroom/files/paths.h"
#include "tuned_recipe.h"
#include "tuner_report.h"

namespace darkroom {
namespace {

constexpr const char* kLedgerFile = "trials.jsonl";
constexpr const char* kBaseRecipeFile = "recipe.toml";

nlohmann::ordered_json head_of(const TuneOptions& options, const std::vector<SearchAxis>& axes) {
  nlohmann::ordered_json search = {{"space", nlohmann::ordered_json::array()}};
  for (const SearchAxis& axis : axes) {
    search["space"].push_back(axis.to_text());
  }
  search["strategy"] = strategy_name(options.strategy);
  search["score"] = score_name(options.score);
  search["trials"] = options.num_trials;
  search["samples"] = options.num_samples;
  search["grid_points"] = options.grid_points;
  search["seed"] = options.seed;
  return {{"search", search}, {"recipe", recipe_to_json(recorded_recipe(options.recipe))}};
}

// A recipe.toml or a report.html in a folder without a ledger is somebody's own.
Status check_output(FileSystem& files, const std::string& output) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_search, files.exists(join_path(output, kLedgerFile)));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(output));
  if (is_search || !is_there) {
    return {};
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto found, files.list(output));
  if (found.empty()) {
    return {};
  }
  return Status::failed_precondition("--output must be a new folder, an empty one or that of the same search; found in it:",
                                     found.front().path);
}

nlohmann::json summary_of(const TuneReport& report) {
  int64_t scored = 0, failed = 0;
  for (const TrialReport& trial : report.trials) {
    scored += trial.loss.has_value() ? 1 : 0;
    failed += trial.state == "failed" || trial.state == "diverged" ? 1 : 0;
  }
  nlohmann::json summary = {{"trials", report.trials.size()},
                            {"trials_scored", scored},
                            {"trials_failed", failed},
                            {"is_complete", report.is_complete},
                            {"seconds", report.spent_seconds}};
  if (report.best) {
    const TrialReport& best = report.trials[static_cast<size_t>(*report.best)];
    summary["best"] = {{"name", best.name}, {"loss", *best.loss}, {"settings", nlohmann::json::object()}};
    for (const auto& [key, value] : best.settings) {
      summary["best"]["settings"][key] = value;
    }
  }
  return summary;
}

std::string first_reason(const TuneReport& report) {
  const auto failed =
      std::find_if(report.trials.begin(), report.trials.end(), [](const TrialReport& trial) { return !trial.reason.empty(); });
  return failed == report.trials.end() ? "nothing was begun within the budget" : failed->reason;
}

}  // namespace

Search::Search(const TuneOptions& options, std::vector<SearchAxis> axes, std::stop_token stop)
    : options_(options), axes_(std::move(axes)), stop_(std::move(stop)) {}

std::string Search::in_folder(const std::string& name) const { return join_path(options_.output, name); }

double Search::spent() const { return spent_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

Status Search::open() {
  FileSystem& files = local_files();
  DARKROOM_RETURN_IF_ERROR(check_output(files, options_.output));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(options_.output));
  constexpr const char* kHeld = "another process is tuning in this folder; wait for it or take another --output:";
  DARKROOM_ASSIGN_OR_RETURN(lock_, lock_folder(files, options_.output, kHeld));
  DARKROOM_RETURN_IF_ERROR(check_output(files, options_.output));  // Nobody else may begin a search here from now on.
  DARKROOM_ASSIGN_OR_RETURN(ledger_, TrialLedger::open(files, in_folder(kLedgerFile), head_of(options_, axes_)));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(in_folder("trials")));
  spent_before_ = record().spent_seconds;
  return write_file_atomic(files, in_folder(kBaseRecipeFile), recipe_to_toml(recorded_recipe(options_.recipe)));
}

// Trials of a search that was killed die with it, but not in the same instant.
Status Search::await_dead_trial(const std::string& run_folder) const {
  constexpr std::chrono::seconds kPatience{60};
  constexpr const char* kHeld = "a trial of an earlier start still trains in its folder; end that process first:";
  const Status at_once = await_unlocked(local_files(), run_folder, kHeld, std::chrono::seconds(0), stop_);
  if (at_once.code() != StatusCode::kFailedPrecondition) {
    return at_once;
  }
  log_info("waiting for the end of a trial of an earlier start: {}", run_folder);
  return await_unlocked(local_files(), run_folder, kHeld, kPatience, stop_);
}

Status Search::run() {
  Status status;
  if (!record().plan.has_value()) {
    status = settle_plan();
  } else {
    log_info("going on with the search of {}: {} of its stages have ended, {:.1f} of {:.1f} minutes are spent", options_.output,
             record().ends.size(), spent() / 60, options_.budget_seconds / 60);
  }
  status = status.is_ok() ? run_stages() : status;
  show_progress("");
  DARKROOM_RETURN_IF_ERROR(ledger_->add_close(is_out_of_budget_, spent()));
  return status;
}

Status Search::report(nlohmann::json& summary) {
  if (ledger_ == nullptr || !record().plan.has_value()) {
    return {};
  }
  DARKROOM_ASSIGN_OR_RETURN(const TuneReport report, read_tune_report(options_, axes_, record()));
  summary = summary_of(report);
  DARKROOM_RETURN_IF_ERROR(write_tune_report(options_, report));
  log_info("tune: the trials, the best first\n{}", report.to_text());
  if (!report.best) {
    return Status::failed_precondition("no trial has a score; the first reason:", first_reason(report));
  }
  log_info("the report is {}; the best recipe: darkroom train {} --output RUN", in_folder("report.html"), in_folder("best.toml"));
  return {};
}

std::vector<std::string> Search::train_flags(const std::string& run_folder, int64_t stop_at,
                                             const std::vector<std::string>& settings) const {
  const Recipe& recipe = options_.recipe;
  std::vector<std::string> flags = {in_folder(kBaseRecipeFile), "--output", run_folder, "--stop-at", fmt::format("{}", stop_at)};
  for (const auto& [flag, place] : {std::pair("--model", &recipe.model.path), std::pair("--data", &recipe.data.path),
                                    std::pair("--raw-data", &recipe.data.raw_path), std::pair("--validation", &recipe.validation.path)}) {
    if (!place->empty()) {
      flags.insert(flags.end(), {flag, *place});
    }
  }
  std::vector<std::string> all = {"samples.every_steps=0", "checkpoint.keep_last=1", "checkpoint.keep_every=0"};
  if (options_.num_workers > 1 && recipe.runtime.workers == 0) {  // Behind a launcher, too: it may put several trials on one machine.
    all.push_back("runtime.workers=1");
  }
  all.insert(all.end(), settings.begin(), settings.end());
  for (const std::string& setting : all) {
    flags.insert(flags.end(), {"--set", setting});
  }
  flags.insert(flags.end(), options_.train_flags.begin(), options_.train_flags.end());
  return flags;
}

const char* score_name(TuneScore score) { return score == TuneScore::kLossAtSamples ? "loss-at-samples" : "loss-at-budget"; }

Status TuneOptions::validate() const {
  DARKROOM_RETURN_IF_ERROR(recipe.validate());
  if (output.empty() || output.find("://") != std::string::npos) {
    return Status::invalid_argument("--output of tune is a folder of this machine, got:", output.empty() ? "nothing" : output);
  }
  if (!(budget_seconds > 0)) {
    return Status::invalid_argument("--budget must be above 0 minutes, got:", budget_seconds / 60);
  }
  if (num_trials < 0 || num_trials > kMostTrials || num_samples < 0 || num_workers < 1 || grid_points < 1) {
    return Status::invalid_argument("--trials, --samples, --workers or --grid-points is out of its range:", num_trials, num_samples,
                                    num_workers, grid_points);
  }
  if (recipe.validation.path.empty()) {
    return Status::invalid_argument("trials are compared by a validation; give --validation URI");
  }
  return {};
}

int64_t default_tune_workers(const Recipe& recipe, const std::string& device, int64_t trial_bytes, int64_t memory_bytes,
                             int64_t num_cores) {
  constexpr double kMemoryShare = 0.8;
  if (device != "cpu") {
    return 1;
  }
  const int64_t passes = (recipe.batch.global + recipe.batch.micro - 1) / recipe.batch.micro;
  const int64_t side_by_side = recipe.runtime.workers > 0 ? recipe.runtime.workers : std::min(num_cores, passes);
  const int64_t by_cores = num_cores / std::max<int64_t>(1, side_by_side * recipe.runtime.threads);
  const double room = kMemoryShare * static_cast<double>(memory_bytes) / static_cast<double>(std::max<int64_t>(1, trial_bytes));
  return std::max<int64_t>(1, std::min(by_cores, static_cast<int64_t>(room)));
}

Status run_tune(const TuneOptions& options, const std::stop_token& stop, nlohmann::json& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_ASSIGN_OR_RETURN(std::vector<SearchAxis> axes, read_search_axes(options.recipe, options.ranges));
  if (axes.empty()) {
    axes = default_search_axes(options.recipe);
  }
  TrialQuestion question{.strategy = options.strategy,
                         .axes = axes,
                         .num_trials = std::max<int64_t>(1, options.num_trials),
                         .grid_points = options.grid_points};
  DARKROOM_RETURN_IF_ERROR(draw_trials(question).status());  // What cannot be drawn is refused before anything is written.
  Search search(options, std::move(axes), stop);
  DARKROOM_RETURN_IF_ERROR(search.open());
  const Status searched = search.run();
  const Status reported = search.report(summary);
  return searched.is_ok() ? reported : searched;
}

}  // namespace darkroom
