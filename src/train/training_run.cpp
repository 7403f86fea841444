#include "training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/train/run_files.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

}  // namespace

double TrainingRun::wall_seconds() const { return facts_->seconds_before() + std::chrono::duration<double>(Clock::now() - began_).count(); }

void TrainingRun::spend(Spending what) {
  if (ledger_ != nullptr) {
    ledger_->spend(what);
  }
}

std::string TrainingRun::in_folder(const char* name) const { return join_path(folder_, name); }

CheckpointRecord TrainingRun::record() const {
  CheckpointRecord record;
  record.step = steps_done_;
  record.samples = steps_done_ * recipe().batch.global;
  record.batch_number = steps_done_;
  record.optimizer_updates = optimizer_->num_updates();
  record.component = part_->component();
  record.index_hash = index_hash_;
  record.recipe = recipe_to_toml(recorded_);
  record.frozen_path = recorded_.model.path;
  if (!data_.vae_fingerprint.empty()) {
    record.frozen_fingerprints["vae"] = data_.vae_fingerprint;
  }
  if (!data_.text_encoder_fingerprint.empty()) {
    record.frozen_fingerprints["text_encoder"] = data_.text_encoder_fingerprint;
  }
  record.tokenizer_dialect = data_.tokenizer_dialect;
  return record;
}

FlatRange TrainingRun::own_samples() const {
  const int64_t num_groups = recipe().runtime.gradient_groups, group_size = recipe().batch.global / num_groups;
  const GroupSpan groups = groups_of_rank(num_groups, ranks().rank(), ranks().size());
  return {groups.first * group_size, groups.count * group_size};
}

Result<StepTimes> TrainingRun::step(bool wants_stop) {
  const auto start = Clock::now();
  const Result<Batch> next = batcher_->next();
  if (!next.is_ok()) {
    return save_before(next.status());
  }
  const Batch& batch = *next;
  StepTimes times;
  times.data_ms = milliseconds_since(start);
  spend(Spending::kDataWait);
  const auto losses = [&, before = own_samples().first](int64_t first, int64_t count) {
    return part_->losses(batch, first - before, count);
  };
  auto report = train_step_->run(steps_done_, recipe().batch.global, losses, wants_stop);
  if (!report.is_ok()) {
    return train_step_->was_not_finite() ? skip_step(report.status(), batch) : Result<StepTimes>(report.status());
  }
  times.report = *report;
  spend(Spending::kTraining);
  steps_done_ += 1;
  if (trace_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(trace_->add(*part_, batch, times.report, *parameters_));
  }
  return times;
}

Result<StepTimes> TrainingRun::skip_step(const Status& failure, const Batch& batch) {
  const Status named = name_bad_samples(failure, batch);
  const int64_t limit = recipe().optimizer.max_skipped;
  if (skipped_steps() >= limit) {
    return limit == 0 ? named : named.with_context(fmt::format("as many steps as optimizer.max_skipped allows were left out ({})", limit));
  }
  StepTimes times;
  times.report = train_step_->report();
  times.is_skipped = true;
  spend(Spending::kLost);
  steps_done_ += 1;
  if (is_main()) {
    log_warning("a step is left out, number {} of at most {}: {}", skipped_steps(), limit, named.message());
  }
  return times;
}

// What was trained is in order when the next samples cannot be read, and they may be readable later on.
Status TrainingRun::save_before(const Status& failure) {
  const bool may_pass = failure.code() == StatusCode::kUnavailable || failure.code() == StatusCode::kCancelled ||
                        failure.code() == StatusCode::kFailedPrecondition ||  // An address whose signature has expired.
                        failure.code() == StatusCode::kNotFound;              // A file that may be put back.
  if (!may_pass || steps_here_ == 0 || ranks().size() > 1) {                  // The other ranks are in the middle of a step.
    return failure;
  }
  if (const Status saved = save(); !saved.is_ok()) {
    log_warning("the steps since the last checkpoint cannot be saved: {}", saved.message());
    return failure;
  }
  return failure.with_context(fmt::format("the run has ended with the checkpoint of step {}, where the same command goes on", steps_done_));
}

// The failure of a step with the rows whose loss was not finite.
Status TrainingRun::name_bad_samples(const Status& failure, const Batch& batch) const {
  constexpr size_t kShown = 3;
  const auto& bad = train_step_->non_finite_samples();
  if (bad.empty()) {
    return failure.with_context("the loss of every sample was finite; try a lower optimizer.lr or optimizer.clip_norm");
  }
  std::vector<std::string> places;
  const FlatRange own = own_samples();
  for (const int64_t position : bad) {
    if (position >= own.first && position < own.first + own.count && places.size() < kShown) {
      places.push_back(batcher_->describe(batch.samples[static_cast<size_t>(position - own.first)].row));
    }
  }
  if (places.empty()) {
    places.emplace_back("none of this rank's; another rank names them");
  }
  const bool is_data = static_cast<int64_t>(bad.size()) < recipe().batch.global;
  const char* advice = is_data ? "these rows gave a loss that is not finite; look at them"
                               : "every row gave a loss that is not finite; try a lower optimizer.lr; the first rows";
  return failure.with_context(fmt::format("{}: {}", advice, fmt::join(places, "; ")));
}

Status TrainingRun::after_step(const StepTimes& times) {
  steps_here_ += 1;
  step_ms_here_ += times.total_ms();
  const bool is_last = steps_done_ == max_steps();
  const auto is_due = [&](int64_t every) { return every > 0 && (steps_done_ % every == 0 || is_last); };
  nlohmann::ordered_json scores = nlohmann::ordered_json::object();
  if (validates() && is_due(recipe().validation.every_steps)) {
    const EmaScope averaged(*parameters_, *ema_, ranks());
    DARKROOM_RETURN_IF_ERROR(averaged.status());
    if (is_main()) {
      DARKROOM_ASSIGN_OR_RETURN(scores, validation_->score());
      log_info("step {}: {}", steps_done_, scores.dump());
    }
    spend(Spending::kLooking);
  }
  if (is_main() && (is_due(recipe().runtime.log_every) || !scores.empty() || times.is_skipped)) {
    DARKROOM_RETURN_IF_ERROR(log_step(times, scores));
  }
  if (is_main()) {
    progress_->show(steps_done_, times);
    spend(Spending::kTraining);
    DARKROOM_RETURN_IF_ERROR(ledger_->record(steps_done_));
  }
  if (has_previews() && is_due(recipe().samples.every_steps)) {
    DARKROOM_RETURN_IF_ERROR(paint_previews());
    spend(Spending::kLooking);
  }
  if (is_due(recipe().checkpoint.every_steps) || is_last) {
    DARKROOM_RETURN_IF_ERROR(save());
  }
  if (trace_ != nullptr && trace_->is_complete()) {
    DARKROOM_RETURN_IF_ERROR(trace_->finish());
    trace_.reset();
  }
  return {};
}

Status TrainingRun::paint_previews() {
  const EmaScope averaged(*parameters_, *ema_, ranks());
  DARKROOM_RETURN_IF_ERROR(averaged.status());
  if (!is_main()) {
    return {};
  }
  const std::string name = join_path(kRunSamplesFolder, checkpoint_name(steps_done_));
  DARKROOM_RETURN_IF_ERROR(previews_->make(files_, in_folder(name.c_str()), steps_done_, *events_));
  if (remote_ != nullptr) {
    remote_->store_folder(name);
  }
  return {};
}

Status TrainingRun::log_step(const StepTimes& times, const nlohmann::ordered_json& scores) {
  const StepReport& report = times.report;
  const double rate = 1000.0 * static_cast<double>(recipe().batch.global) / times.total_ms();
  nlohmann::ordered_json line = {
      {"step", steps_done_},
      {"samples", steps_done_ * recipe().batch.global},
      {"loss", report.loss},
      {"grad_norm", report.grad_norm},
      {"lr", report.learning_rate},
      {"images_per_second", rate},
      {"seconds", wall_seconds()},
      {"goodput", ledger_->goodput()},
      {"ms", {{"data", times.data_ms}, {"forward", report.forward_ms}, {"backward", report.backward_ms}, {"optimizer", report.update_ms}}}};
  if (times.is_skipped) {
    line.erase("loss");
    line.erase("grad_norm");
  }
  if (skipped_steps() > 0) {
    line["skipped"] = skipped_steps();
  }
  line.update(scores);
  DARKROOM_RETURN_IF_ERROR(metrics_->append(line));
  if (!times.is_skipped) {
    DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/loss", static_cast<float>(report.loss)));
    DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/grad_norm", static_cast<float>(report.grad_norm)));
  }
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/lr", static_cast<float>(report.learning_rate)));
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/images_per_second", static_cast<float>(rate)));
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/goodput", static_cast<float>(ledger_->goodput())));
  for (const auto& [name, value] : scores.items()) {
    DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "validation/" + name, value.get<float>()));
  }
  return {};
}

Status TrainingRun::save() {
  if (saved_step_ == steps_done_) {
    return {};
  }
  if (!is_main()) {
    saved_step_ = steps_done_;
    return hand_in_training_state(*state_);
  }
  DARKROOM_RETURN_IF_ERROR(restore_lost_folder());
  // Lines up to a checkpoint's step must be there when the run goes on from it.
  DARKROOM_RETURN_IF_ERROR(metrics_->sync());
  DARKROOM_RETURN_IF_ERROR(events_->sync());
  const std::string folder = in_folder(kRunCheckpointsFolder);
  DARKROOM_RETURN_IF_ERROR(save_checkpoint(files_, folder, record(), *state_));
  DARKROOM_RETURN_IF_ERROR(facts_->write(steps_done_, wall_seconds()));
  spend(Spending::kSaving);
  DARKROOM_RETURN_IF_ERROR(ledger_->record_saved(steps_done_));
  if (remote_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(remote_->store_checkpoint(steps_done_, recipe().checkpoint));
    saved_step_ = steps_done_;
    spend(Spending::kSaving);
    return {};
  }
  saved_step_ = steps_done_;
  const Status pruned = prune_checkpoints(files_, folder, recipe().checkpoint.keep_last, recipe().checkpoint.keep_every);
  spend(Spending::kSaving);
  return pruned;
}

// Nobody goes without the last lines of the metrics for a ledger that a store does not take.
Status TrainingRun::end_ledger() {
  if (!is_main()) {
    return {};
  }
  spend(Spending::kSaving);
  DARKROOM_RETURN_IF_ERROR(ledger_->record_end(steps_done_));
  if (remote_ != nullptr) {
    if (const Status stored = remote_->store_file(kRunGoodputFile); !stored.is_ok()) {
      log_warning("the ledger's last line is not in the run folder: {}", stored.message());
    }
  }
  return {};
}

Status TrainingRun::run(const std::stop_token& stop) {
  const auto start = Clock::now();
  while (steps_done_ < max_steps()) {
    // Several ranks stop at the same step: the one in which a rank said so.
    if (ranks().size() > 1 ? stop_is_agreed_ : stop.stop_requested()) {
      DARKROOM_RETURN_IF_ERROR(save());
      DARKROOM_RETURN_IF_ERROR(end_ledger());
      DARKROOM_RETURN_IF_ERROR(ranks().finish());
      return Status::cancelled("stopped on request; the same command goes on from the checkpoint of step:", steps_done_);
    }
    DARKROOM_ASSIGN_OR_RETURN(const StepTimes times, step(stop.stop_requested()));
    stop_is_agreed_ = times.report.wants_stop;
    DARKROOM_RETURN_IF_ERROR(after_step(times));
    seconds_here_ = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (trace_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(trace_->finish());
  }
  DARKROOM_RETURN_IF_ERROR(save());
  if (is_main()) {
    DARKROOM_RETURN_IF_ERROR(metrics_->sync());
  }
  DARKROOM_RETURN_IF_ERROR(end_ledger());
  DARKROOM_RETURN_IF_ERROR(ranks().finish());
  seconds_here_ = std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

void TrainingRun::store_logs_of_failure() {
  if (remote_ == nullptr || steps_done_ == saved_step_ || !metrics_->sync().is_ok() || !events_->sync().is_ok()) {
    return;
  }
  if (const Status stored = remote_->store_logs(steps_done_); !stored.is_ok()) {
    log_warning("what was logged since the last checkpoint is not in the run folder: {}", stored.message());
  }
}

Status TrainingRun::sum_up(TrainSummary& summary) const {
  summary.parameters = parameters_->size();
  summary.steps = steps_done_;
  summary.skipped = skipped_steps();
  summary.samples = steps_done_ * recipe().batch.global;
  summary.rows = data_.index.num_rows();
  summary.seconds = seconds_here_;
  summary.images_per_second = steps_here_ == 0 ? 0 : 1000.0 * static_cast<double>(steps_here_ * recipe().batch.global) / step_ms_here_;
  DARKROOM_ASSIGN_OR_RETURN(const std::string metrics, read_file(files_, in_folder(kRunMetricsFile)));
  std::tie(summary.loss_first, summary.loss_last) = first_and_last_loss(metrics);
  return {};
}

}  // namespace darkroom
