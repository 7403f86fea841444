#include "tuner_report.h"

#include <fmt/format.h>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/show/tune_page.h"
#include "darkroom/train/run_files.h"
#include "tuned_recipe.h"

namespace darkroom {
namespace {

// A recipe that `train` takes, and how.
Status write_best_recipe(const TuneOptions& options, const TrialReport& best) {
  const std::string path = join_path(options.output, "best.toml");
  DARKROOM_ASSIGN_OR_RETURN(const Recipe recipe, full_recipe_with(options.recipe, best.settings));
  std::string text = fmt::format("# The best recipe that `darkroom tune` found: {} ({}), validation loss {:.6g} after {} samples.\n",
                                 best.name, settings_text(best.settings), best.loss.value_or(0), best.samples);
  text += fmt::format("#   darkroom train {} --output RUN\n\n", path);
  return write_file_atomic(local_files(), path, text + recipe_to_toml(recorded_recipe(recipe)));
}

}  // namespace

std::string trial_folder(const std::string& output, int64_t trial) { return join_path(join_path(output, "trials"), trial_name(trial)); }

Result<TuneReport> read_tune_report(const TuneOptions& options, const std::vector<SearchAxis>& axes, const TuneRecord& record) {
  ReportInputs inputs{.axes = axes,
                      .base = own_settings(options.recipe, axes),
                      .price = options.price,
                      .budget_seconds = options.budget_seconds,
                      .num_sharing = options.num_sharing()};
  for (int64_t trial = 0; trial < static_cast<int64_t>(record.plan->trials.size()); ++trial) {
    DARKROOM_ASSIGN_OR_RETURN(TrialCurve curve,
                              read_trial_curve(local_files(), join_path(trial_folder(options.output, trial), kRunMetricsFile)));
    inputs.curves.push_back(std::move(curve));
  }
  return make_tune_report(record, inputs);
}

Status write_tune_report(const TuneOptions& options, const TuneReport& report) {
  const std::string json = report.to_json().dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), join_path(options.output, "report.json"), json));
  const std::string best = join_path(options.output, "best.toml");
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), join_path(options.output, "report.html"), render_tune_page(report, best)));
  return report.best ? write_best_recipe(options, report.trials[static_cast<size_t>(*report.best)]) : Status::ok();
}

}  // namespace darkroom
