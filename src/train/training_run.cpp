#include "training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <type_traits>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/scratch.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/train/run_files.h"
#include "online_balance.h"
#include "step_settings.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

// So long, but not longer than `most`.
Clock::duration span_of(double ms, Clock::duration most) {
  return std::min(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms)), most);
}

/// What an exception ends a run with.
Status caught_in_run(const torch::Device& device, const std::exception& failure) {
  const bool is_of_torch = dynamic_cast<const c10::Error*>(&failure) != nullptr;
  if (is_of_torch && dynamic_cast<const c10::OutOfMemoryError*>(&failure) == nullptr) {  // A GPU that is lost is as a rank that is.
    DARKROOM_RETURN_IF_ERROR(try_device(device));
  }
  return caught_on_device(failure);
}

/// What `work` returns, or what it throws as a status.
template <typename Work>
std::invoke_result_t<Work> without_exceptions(const torch::Device& device, const Work& work) {
  try {
    return work();
  } catch (const std::exception& failure) {
    return caught_in_run(device, failure);
  }
}

double milliseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

}  // namespace

double TrainingRun::wall_seconds() const { return facts_->seconds_before() + std::chrono::duration<double>(Clock::now() - began_).count(); }

// Of a step on a CPU: the passes come first, then the exchange with the other ranks, the update. The times are the step's own sums over
// micro-batches.
void TrainingRun::record_phases(const SpanContext& step, Clock::time_point issued, const StepTimes& times) {
  TraceRecorder* spans = options_.spans;
  if (spans == nullptr) {
    return;
  }
  if (!device().is_cpu()) {
    record_device_phases(step, times);
    return;
  }
  const StepReport& report = times.report;
  const Clock::time_point end = spans->now();
  const Clock::time_point passed = issued + span_of(report.forward_ms + report.backward_ms, end - issued);
  const Clock::time_point issued_all = std::max(passed, end - span_of(report.wait_ms, end - issued));
  const Clock::time_point exchanged = ranks().size() > 1 ? std::max(passed, issued_all - span_of(report.update_ms, end - issued)) : passed;
  record_phase(step, "forward_backward", issued, passed,
               {{"darkroom.forward_ms", report.forward_ms}, {"darkroom.backward_ms", report.backward_ms}});
  if (ranks().size() > 1) {
    record_phase(step, "reduce", passed, exchanged, {});
  }
  record_phase(step, "update", exchanged, issued_all, {});
  record_phase(step, "device_wait", issued_all, end, {});
}

// The GPU's own times, told once the host has waited for it: it has come to the last step's end just now. Until then the spans of steps
// that ran ahead are kept.
void TrainingRun::record_device_phases(const SpanContext& step, const StepTimes& times) {
  const Clock::time_point now = options_.spans->now();
  if (times.report.wait_ms > 0) {
    record_phase(step, "device_wait", now - span_of(times.report.wait_ms, now - began_), now, {});
  }
  untimed_steps_.emplace_back(times.report.step, step);
  for (const PhaseTimes& phases : times.phases) {
    while (!untimed_steps_.empty() && untimed_steps_.front().first < phases.step) {
      untimed_steps_.pop_front();
    }
    if (untimed_steps_.empty() || untimed_steps_.front().first != phases.step) {
      continue;
    }
    const SpanContext& timed = untimed_steps_.front().second;
    const auto ago = [&](double ms) { return now - span_of(ms, now - began_); };
    const double update = phases.ended_ago_ms + phases.update_ms;
    const double passes = update + phases.forward_ms + phases.backward_ms;
    record_phase(timed, "device_idle", ago(passes + phases.idle_ms), ago(passes), {});
    record_phase(timed, "forward_backward", ago(passes), ago(update),
                 {{"darkroom.forward_ms", phases.forward_ms}, {"darkroom.backward_ms", phases.backward_ms}});
    record_phase(timed, "update", ago(update), ago(phases.ended_ago_ms), {});
    untimed_steps_.pop_front();
  }
}

void TrainingRun::record_phase(const SpanContext& step, const char* name, Clock::time_point from, Clock::time_point to,
                               SpanAttributes attributes) const {
  options_.spans->record({.name = name,
                          .context = options_.spans->make_context(step),
                          .parent = step.span,
                          .begin = from,
                          .end = to,
                          .attributes = std::move(attributes)});
}

void TrainingRun::spend(Spending what) {
  if (ledger_ != nullptr) {
    ledger_->spend(what);
  }
}

void TrainingRun::get_on(const std::string& doing) const {
  if (ProgressMark* const progress = ranks().progress(); progress != nullptr) {
    progress->note(doing.empty() ? doing : fmt::format("{} steps done, {}", steps_done_, doing));
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
  if (!data_.tokenizer_fingerprint.empty()) {
    record.frozen_fingerprints["tokenizer"] = data_.tokenizer_fingerprint;
  }
  record.tokenizer_dialect = data_.tokenizer_dialect;
  return record;
}

FlatRange TrainingRun::own_samples() const { return samples_of_rank(recipe(), ranks().rank(), ranks().size()); }

bool TrainingRun::runs_ahead(bool wants_stop) const {
  const int64_t next = steps_done_ + 1;
  const auto is_due = [&](int64_t every) { return every > 0 && next % every == 0; };
  const bool looks = wants_stop || next == last_step() || trace_ != nullptr || recipe().optimizer.max_skipped > 0 ||
                     is_due(recipe().runtime.log_every) || is_due(recipe().checkpoint.every_steps) ||
                     (validates() && is_due(recipe().validation.every_steps)) || (has_previews() && is_due(recipe().samples.every_steps));
  return !device().is_cpu() && ranks().size() == 1 && !looks;
}

// A step that ran ahead and whose numbers were not finite ends the run: what came after it built on it.
Status TrainingRun::settle() {
  const Status settled = train_step_->settle();
  return settled.is_ok() || !train_step_->was_not_finite() ? settled : name_bad_samples(settled);
}

// A run alone that was stopped before a step had its samples. Several ranks stop in a step that all do.
bool TrainingRun::stopped_waiting(const Status& failure, const std::stop_token& stop) const {
  return ranks().size() == 1 && failure.code() == StatusCode::kCancelled && stop.stop_requested();
}

Result<StepTimes> TrainingRun::step(const std::stop_token& stop) {
  const auto start = Clock::now();
  const bool wants_stop = stop.stop_requested() || background_save_failed_;
  TraceSpan span(options_.spans, "step");
  span.set("darkroom.step", steps_done_ + 1);
  train_step_->begin_step();
  TraceSpan wait(options_.spans, "data_wait", span.context());
  get_on(recipe().data.raw_path.empty() ? "waiting for the next batch" : "");  // Encoders have limits of their own.
  const Result<Batch> next = batcher_->next(ranks().size() == 1 ? stop : std::stop_token());
  wait.end();
  spend(Spending::kDataWait);
  if (!next.is_ok()) {
    return stopped_waiting(next.status(), stop) ? next.status() : save_before(next.status());
  }
  const Batch& batch = *next;
  StepTimes times;
  times.data_ms = milliseconds_since(start);
  wait_ms_here_ += times.data_ms;
  part_->load(batch);
  recent_samples_.emplace_back(steps_done_, batch.samples);
  if (static_cast<int64_t>(recent_samples_.size()) > TrainStep::kMostAhead + 1) {
    recent_samples_.pop_front();
  }
  const auto losses = [this](const std::vector<torch::Tensor>& inputs) {
    get_on("computing a micro-batch");
    return part_->losses(inputs);
  };
  const DeviceBatch loaded{.size = recipe().batch.global, .inputs = part_->inputs(), .losses = losses};
  const auto issued = options_.spans == nullptr ? Clock::time_point() : options_.spans->now();
  auto report = runs_ahead(wants_stop) ? train_step_->run_ahead(steps_done_, loaded) : train_step_->run(steps_done_, loaded, wants_stop);
  times.report = train_step_->report();
  times.phases = train_step_->take_phase_times();
  record_phases(span.context(), issued, times);
  if (!report.is_ok()) {
    span.fail(report.status());
    if (!train_step_->was_not_finite()) {
      return report.status();
    }
    DARKROOM_RETURN_IF_ERROR(skip_step(report.status()));
    times.is_skipped = true;
    times.step_ms = milliseconds_since(start);
    return times;
  }
  times.report = *report;
  span.end();
  spend(Spending::kTraining);
  steps_done_ += 1;
  if (!times.report.is_ahead) {
    recent_samples_.clear();
  }
  times.step_ms = milliseconds_since(start);
  if (trace_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(trace_->add(*part_, batch, times.report, *parameters_));
  }
  return times;
}

Status TrainingRun::skip_step(const Status& failure) {
  const Status named = name_bad_samples(failure);
  recent_samples_.clear();
  const int64_t limit = recipe().optimizer.max_skipped;
  if (skipped_steps() >= limit) {
    return limit == 0 ? named : named.with_context(fmt::format("as many steps as optimizer.max_skipped allows were left out ({})", limit));
  }
  spend(Spending::kLost);
  steps_done_ += 1;
  if (is_main()) {
    log_warning("a step is left out, number {} of at most {}: {}", skipped_steps(), limit, named.message());
  }
  return {};
}

// What was trained is in order when the next samples cannot be read.
Status TrainingRun::save_before(const Status& failure) {
  return steps_here_ == 0 || ranks().size() > 1 ? failure : save_at_end(failure);  // Other ranks are in the middle of a step.
}

// Of a run alone that ends with `failure` between two steps.
Status TrainingRun::save_at_end(const Status& failure) {
  if (const Status saved = without_exceptions(device(), [&] { return save(AfterSaving::kEnds); }); !saved.is_ok()) {
    log_warning("the steps since the last checkpoint cannot be saved: {}", saved.message());
    return failure;
  }
  return failure.with_context(
      fmt::format("the run has ended with the checkpoint of step {}, where {}", steps_done_, options_.command_that_goes_on()));
}

// The failure of a step with the rows whose loss was not finite.
Status TrainingRun::name_bad_samples(const Status& failure) const {
  constexpr size_t kShown = 3;
  const auto& bad = train_step_->non_finite_samples();
  if (bad.empty()) {
    return failure.with_context("the loss of every sample was finite; try a lower optimizer.lr or optimizer.clip_norm");
  }
  std::vector<std::string> places;
  const FlatRange own = own_samples();
  const auto samples = std::find_if(recent_samples_.begin(), recent_samples_.end(),
                                    [&](const auto& step) { return step.first == train_step_->report().step; });
  DARKROOM_CHECK(samples != recent_samples_.end(), "the samples of a step that failed are known:", train_step_->report().step);
  for (const int64_t position : bad) {
    if (position >= own.first && position < own.first + own.count && places.size() < kShown) {
      places.push_back(batcher_->describe(samples->second[static_cast<size_t>(position - own.first)].row));
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
  get_on("writing its logs");
  steps_here_ += 1;
  step_ms_here_ += times.step_ms;
  if (shown_ != nullptr) {
    shown_->show_step(steps_done_, times);
  }
  const bool is_last = steps_done_ == last_step();
  const auto is_due = [&](int64_t every) { return every > 0 && (steps_done_ % every == 0 || is_last); };
  const bool has_scores = validates() && is_due(recipe().validation.every_steps);
  const Result<nlohmann::ordered_json> scores = has_scores ? without_exceptions(device(), [&] { return validate(); })
                                                           : Result<nlohmann::ordered_json>(nlohmann::ordered_json::object());
  // A checkpoint of this step has its line, too.
  if (is_main() && (is_due(recipe().runtime.log_every) || has_scores || times.is_skipped)) {
    DARKROOM_RETURN_IF_ERROR(log_step(times, scores.is_ok() ? *scores : nlohmann::ordered_json::object()));
  }
  if (is_main()) {
    progress_->show(steps_done_, times);
    spend(Spending::kTraining);
    DARKROOM_RETURN_IF_ERROR(ledger_->record(steps_done_));
    if (shown_ != nullptr) {
      shown_->show_spent(*ledger_);
    }
  }
  Status looked = scores.status();
  if (looked.is_ok() && has_previews() && is_due(recipe().samples.every_steps)) {
    looked = without_exceptions(device(), [&] { return paint_previews(); });
    spend(Spending::kLooking);
  }
  if (!looked.is_ok()) {  // The step itself is in order. Of several ranks the others are in the next one already.
    return ranks().size() > 1 ? looked : save_at_end(looked);
  }
  if (is_due(recipe().checkpoint.every_steps) || is_last) {
    DARKROOM_RETURN_IF_ERROR(save(is_last ? AfterSaving::kEnds : AfterSaving::kGoesOn));
  }
  if (trace_ != nullptr && trace_->is_complete()) {
    DARKROOM_RETURN_IF_ERROR(trace_->finish());
    trace_.reset();
  }
  return {};
}

// By rank 0; empty elsewhere.
Result<nlohmann::ordered_json> TrainingRun::validate() {
  const TraceSpan span(options_.spans, "validate");
  const EmaScope averaged(*parameters_, *ema_, ranks());
  DARKROOM_RETURN_IF_ERROR(averaged.status());
  nlohmann::ordered_json scores = nlohmann::ordered_json::object();
  if (is_main()) {
    DARKROOM_ASSIGN_OR_RETURN(scores, validation_->score([this] { get_on("validating"); }));
    log_info("step {}: {}", steps_done_, scores.dump());
  }
  spend(Spending::kLooking);
  return scores;
}

Status TrainingRun::paint_previews() {
  const TraceSpan span(options_.spans, "preview");
  const EmaScope averaged(*parameters_, *ema_, ranks());
  DARKROOM_RETURN_IF_ERROR(averaged.status());
  if (!is_main()) {
    return {};
  }
  const std::string name = join_path(kRunSamplesFolder, checkpoint_name(steps_done_));
  get_on("");  // Painting says nothing until it is done.
  try {
    DARKROOM_RETURN_IF_ERROR(previews_->make(files_, in_folder(name.c_str()), steps_done_, *events_));
  } catch (const c10::OutOfMemoryError& failure) {
    log_warning("the previews of step {} are left out, because the GPU has no memory for them: {}", steps_done_,
                failure.what_without_backtrace());
    return {};
  }
  if (remote_ != nullptr && background_save_.valid() && !background_save_has_ended()) {
    folders_to_store_.push_back(name);  // The store is the other thread's.
  } else if (remote_ != nullptr) {
    remote_->store_folder(name);
  }
  return {};
}

Status TrainingRun::log_step(const StepTimes& times, const nlohmann::ordered_json& scores) {
  const StepReport& report = times.report;
  const PhaseTimes phases = times.phases.empty() ? PhaseTimes() : times.phases.back();
  const auto num_steps = static_cast<double>(steps_here_ - std::exchange(logged_here_, steps_here_));
  const double mean_ms = (step_ms_here_ - std::exchange(logged_ms_, step_ms_here_)) / num_steps;
  const double rate = 1000.0 * static_cast<double>(recipe().batch.global) / mean_ms;
  nlohmann::ordered_json line = {{"step", steps_done_},
                                 {"samples", steps_done_ * recipe().batch.global},
                                 {"loss", report.loss},
                                 {"grad_norm", report.grad_norm},
                                 {"lr", report.learning_rate},
                                 {"images_per_second", rate},
                                 {"seconds", wall_seconds()},
                                 {"goodput", ledger_->goodput()},
                                 {"peak_memory_bytes", peak_memory_bytes(device())},
                                 {"ms",
                                  {{"data", times.data_ms},
                                   {"forward", phases.forward_ms},
                                   {"backward", phases.backward_ms},
                                   {"optimizer", phases.update_ms},
                                   {"device_wait", report.wait_ms}}}};
  if (!device().is_cpu()) {
    line["ms"]["device_idle"] = phases.idle_ms;
  }
  if (const auto tflops = step_work().tflops(mean_ms)) {
    line["tflops"] = *tflops;
  }
  if (const auto mfu = step_work().mfu(mean_ms)) {
    line["mfu"] = *mfu;
  }
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

// All work is saved: neither the run nor the other ranks fail for the ledger's last line.
void TrainingRun::end_ledger() {
  if (!is_main()) {
    return;
  }
  spend(Spending::kSaving);
  Status recorded = ledger_->record_end(steps_done_);
  if (recorded.is_ok() && remote_ != nullptr) {
    recorded = remote_->store_file(kRunGoodputFile);
  }
  if (!recorded.is_ok()) {
    log_warning("the ledger's last line is not in the run folder: {}", recorded.message());
  }
}

// Encoders elsewhere: who waited for whom. The ranks are in step, so that the one that waited longest was waited for by all.
Status TrainingRun::weigh_sides() {
  if (remote_source_ == nullptr) {
    return {};
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> waits_ms, gather_numbers(ranks(), std::llround(wait_ms_here_)));
  if (is_main()) {
    constexpr double kSecond = 1000;
    const double wait_seconds = static_cast<double>(*std::ranges::max_element(waits_ms)) / kSecond;
    const OnlineBalance balance =
        balance_of(remote_source_->report(), step_ms_here_ / kSecond, wait_seconds, steps_here_ * recipe().batch.global);
    balance_ = balance.to_json();
    log_info("online: {}", balance.to_text());
    Status noted = facts_->write_online(balance_);
    noted = noted.is_ok() && remote_ != nullptr ? remote_->store_file(kRunFactsFile) : noted;
    if (!noted.is_ok()) {  // All work is saved.
      log_warning("which side waited is not in the run folder: {}", noted.message());
    }
  }
  return {};
}

Status TrainingRun::run(const std::stop_token& stop) {
  Status status = without_exceptions(device(), [&] { return run_steps(stop); });
  get_on("");  // A store may be waited for.
  end_background_save();
  return status;
}

Status TrainingRun::run_steps(const std::stop_token& stop) {
  const auto start = Clock::now();
  while (steps_done_ < last_step()) {
    if (ranks().size() == 1 && background_save_has_ended()) {
      DARKROOM_RETURN_IF_ERROR(finish_background_save());
      if (remote_ == nullptr && saved_step_ < background_step_) {  // Its folder was lost meanwhile.
        DARKROOM_RETURN_IF_ERROR(save(AfterSaving::kGoesOn));
      }
    }
    // Several ranks stop at the same step: the one in which a rank said so.
    if (ranks().size() > 1 ? stop_is_agreed_ : stop.stop_requested()) {
      DARKROOM_RETURN_IF_ERROR(save(AfterSaving::kEnds));
      end_ledger();
      DARKROOM_RETURN_IF_ERROR(weigh_sides());
      DARKROOM_RETURN_IF_ERROR(ranks().finish());
      return Status::cancelled(fmt::format("stopped on request; {} from the checkpoint of step:", options_.command_that_goes_on()),
                               steps_done_);
    }
    const Result<StepTimes> times = step(stop);
    if (stopped_waiting(times.status(), stop)) {
      continue;
    }
    DARKROOM_RETURN_IF_ERROR(times.status());
    stop_is_agreed_ = times->report.wants_stop;
    DARKROOM_RETURN_IF_ERROR(after_step(*times));
    seconds_here_ = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (trace_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(trace_->finish());
  }
  DARKROOM_RETURN_IF_ERROR(save(AfterSaving::kEnds));
  if (is_main()) {
    DARKROOM_RETURN_IF_ERROR(metrics_->sync());
  }
  end_ledger();
  DARKROOM_RETURN_IF_ERROR(weigh_sides());
  DARKROOM_RETURN_IF_ERROR(ranks().finish());
  seconds_here_ = std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

void TrainingRun::store_logs_of_failure() {
  if (remote_ == nullptr || steps_done_ == stored_step_ || !metrics_->sync().is_ok() || !events_->sync().is_ok()) {
    return;
  }
  if (const Status stored = remote_->store_logs(steps_done_); !stored.is_ok()) {
    log_warning("what was logged since the last checkpoint is not in the run folder: {}", stored.message());
  }
}

Status TrainingRun::sum_up(TrainSummary& summary) const {
  summary.parameters = parameters_->num_elements();
  summary.steps = steps_done_;
  summary.skipped = skipped_steps();
  summary.samples = steps_done_ * recipe().batch.global;
  summary.rows = data_.index.num_rows();
  summary.seconds = seconds_here_;
  summary.machines = machines_;
  summary.online = balance_;
  summary.images_per_second = steps_here_ == 0 ? 0 : 1000.0 * static_cast<double>(steps_here_ * recipe().batch.global) / step_ms_here_;
  DARKROOM_ASSIGN_OR_RETURN(const std::string metrics, read_file(files_, in_folder(kRunMetricsFile)));
  std::tie(summary.loss_first, summary.loss_last) = first_and_last_loss(metrics);
  return {};
}

}  // namespace darkroom
