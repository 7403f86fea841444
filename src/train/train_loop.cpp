#include "darkroom/train/train_loop.h"

#include "training_run.h"

namespace darkroom {

Status TrainOptions::validate() const {
  DARKROOM_RETURN_IF_ERROR(recipe.validate());
  if (output.empty()) {
    return Status::invalid_argument("no run folder is named: give", "--output URI");
  }
  if (resume.empty()) {
    return Status::invalid_argument("--resume takes auto, none or a checkpoint's path, got:", "''");
  }
  if (stop_at < 0) {
    return Status::invalid_argument("--stop-at must be at least 1, got:", stop_at);
  }
  if (!init_from.empty() && recipe.model.start == "weights") {
    return Status::invalid_argument("--init-from and model.start = \"weights\" both name starting weights; drop one of them:", init_from);
  }
  if (!encoders.empty() && (recipe.data.raw_path.empty() || recipe.objective.kind != "diffusion")) {
    return Status::invalid_argument("--encoders encode the pictures of --raw-data for the objective \"diffusion\"; drop it, got:",
                                    encoders);
  }
  if (ranks->size() > recipe.runtime.gradient_groups) {
    return Status::invalid_argument(
        "each rank takes at least one gradient group of a batch; set runtime.gradient_groups to the ranks or more (groups, ranks):",
        recipe.runtime.gradient_groups, ranks->size());
  }
  if (!trace_path.empty() && ranks->size() > 1) {
    return Status::invalid_argument("--trace records a run of one rank, got ranks:", ranks->size());
  }
  if (!trace_path.empty() && trace_steps < 1) {
    return Status::invalid_argument("--trace-steps must be at least 1, got:", trace_steps);
  }
  return {};
}

std::string_view TrainOptions::command_that_goes_on() const {
  return resume == "auto" ? "the same command goes on" : "--resume auto goes on";
}

nlohmann::json TrainSummary::to_json() const {
  nlohmann::json json = {{"parameters", parameters},
                         {"steps", steps},
                         {"samples", samples},
                         {"skipped", skipped},
                         {"rows_in", rows},
                         {"rows_out", rows},
                         {"rows_by_error", nlohmann::json::object()},
                         {"loss_first", loss_first},
                         {"loss_last", loss_last},
                         {"images_per_second", images_per_second},
                         {"seconds", seconds}};
  if (!online.is_null()) {
    json["online"] = online;
  }
  return json;
}

Status run_training(StoreSet& stores, const TrainOptions& options, std::stop_token stop, TrainSummary& summary) {
  DARKROOM_ASSIGN_OR_RETURN(const auto run, TrainingRun::create(local_files(), stores, options, stop));
  Status status = run->run(std::move(stop));
  if (!status.is_ok() && status.code() != StatusCode::kUnavailable) {  // Else the store may be what failed.
    run->store_logs_of_failure();
  }
  if (status.code() == StatusCode::kInvalidArgument) {  // Whoever started it has named nothing that the run did not take.
    status = Status::failed_precondition(status.message());
  }
  status = status.is_ok() ? status : run->keep_unstored_checkpoint(std::move(status));
  const Status summed_up = options.ranks->rank() == 0 ? run->sum_up(summary) : Status::ok();
  return status.is_ok() ? summed_up : status;
}

Status run_training(const TrainOptions& options, std::stop_token stop, TrainSummary& summary) {
  MetricsRegistry metrics;
  StoreSet stores({}, system_clock(), metrics);  // A stop ends no read: the step at hand is finished, then saved.
  return run_training(stores, options, std::move(stop), summary);
}

Result<TrainSummary> run_training(const TrainOptions& options, std::stop_token stop) {
  TrainSummary summary;
  DARKROOM_RETURN_IF_ERROR(run_training(options, std::move(stop), summary));
  return summary;
}

}  // namespace darkroom
