#include "training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/stores/uri.h"
#include "darkroom/train/run_files.h"
#include "resume_point.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMillion = 1'000'000;

double milliseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// A cosine of a run that is shorter than its warm-up (--max-steps) warms up until its last step.
LrScheduleOptions lr_schedule(const Recipe& recipe) {
  return {.peak = recipe.optimizer.lr,
          .warmup_steps = std::min(recipe.schedule.warmup_steps, recipe.schedule.max_steps - 1),
          .decay = recipe.schedule.kind == "cosine" ? LrDecay::kCosine : LrDecay::kConstant,
          .total_steps = recipe.schedule.max_steps,
          .floor = recipe.optimizer.lr * recipe.schedule.final_fraction};
}

int64_t num_workers(const Recipe& recipe) {
  const auto& runtime = recipe.runtime;
  return runtime.workers > 0 ? runtime.workers : std::max<int64_t>(1, num_processors() / runtime.threads);
}

AdamWOptions adamw(const Recipe& recipe) {
  const auto& optimizer = recipe.optimizer;
  return {.beta1 = optimizer.beta1, .beta2 = optimizer.beta2, .epsilon = optimizer.epsilon, .weight_decay = optimizer.weight_decay};
}

// Latents and states as the U-Net takes them at the recipe's resolution.
Result<SampleShapes> sample_shapes(const UNetConfig& unet, int64_t resolution, const FrozenModels* frozen) {
  constexpr int64_t kTokens = ClipTokenizer::kContextLength;
  constexpr int64_t kPublishedFactor = 8;
  const int64_t factor = frozen == nullptr ? kPublishedFactor : frozen->vae->config().factor();
  if (resolution % factor != 0) {
    return Status::invalid_argument("the recipe's data.resolution must be a multiple of the VAE's factor (factor, resolution):", factor,
                                    resolution);
  }
  return SampleShapes{{unet.in_channels, resolution / factor, resolution / factor}, {kTokens, unet.states_width()}};
}

}  // namespace

double TrainingRun::wall_seconds() const { return facts_->seconds_before() + std::chrono::duration<double>(Clock::now() - began_).count(); }

std::string TrainingRun::in_folder(const char* name) const { return join_path(folder_, name); }

Result<std::unique_ptr<TrainingRun>> TrainingRun::create(FileSystem& files, const TrainOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  at::set_num_threads(static_cast<int>(options.recipe.runtime.threads));
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  DARKROOM_ASSIGN_OR_RETURN(const std::string folder, local_path(options.output));
  DARKROOM_ASSIGN_OR_RETURN(const bool was_there, files.exists(folder));
  std::unique_ptr<TrainingRun> run(new TrainingRun(files, options));
  const Status status = run->set_up();
  if (!status.is_ok()) {
    if (!was_there) {
      run->remove_empty_folders();
    }
    return status;
  }
  return run;
}

// Only under the lock: another start may hold this folder, still empty while it loads its model. The failure that led here is the
// one to report.
void TrainingRun::remove_empty_folders() {
  if (lock_ == nullptr) {
    return;
  }
  for (const std::string& folder : {in_folder(kRunCheckpointsFolder), folder_}) {
    const auto left = files_.list(folder);
    if (left.is_ok() && left->empty()) {
      static_cast<void>(files_.remove_tree(folder));
    }
  }
}

Status TrainingRun::set_up() {
  DARKROOM_RETURN_IF_ERROR(open_folder());
  const bool is_diffusion = recipe().objective.kind == "diffusion";
  const std::string component = is_diffusion ? "unet" : "vae";
  std::string weights;
  if (resumed_.has_value()) {
    weights = join_path(resumed_->place.path, component);
  } else {
    DARKROOM_ASSIGN_OR_RETURN(weights, find_initial_weights(files_, options_.init_from, component));
  }
  DARKROOM_RETURN_IF_ERROR(is_diffusion ? open_diffusion(weights) : open_autoencoder(weights));
  DARKROOM_RETURN_IF_ERROR(open_optimizer());
  DARKROOM_RETURN_IF_ERROR(restore_or_begin());
  return open_outputs();
}

Status TrainingRun::open_folder() {
  DARKROOM_ASSIGN_OR_RETURN(folder_, local_path(options_.output));
  DARKROOM_RETURN_IF_ERROR(files_.create_folders(in_folder(kRunCheckpointsFolder)));
  auto lock = files_.try_lock(folder_);
  const bool has_locks = lock.status().code() != StatusCode::kFailedPrecondition;  // Else a file system without them.
  if (has_locks) {
    DARKROOM_ASSIGN_OR_RETURN(lock_, std::move(lock));
    if (lock_ == nullptr) {
      return Status::failed_precondition("another process is training in this run folder; wait for it or take another --output:", folder_);
    }
  }
  DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files_, folder_));
  DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files_, in_folder(kRunCheckpointsFolder)));
  DARKROOM_ASSIGN_OR_RETURN(resumed_, find_resume_point(files_, in_folder(kRunCheckpointsFolder), options_));
  return {};
}

Status TrainingRun::open_diffusion(const std::string& weights_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const NoiseScheduleConfig noise, make_noise_config(recipe()));
  DARKROOM_ASSIGN_OR_RETURN(auto unet, make_starting_unet(files_, recipe(), weights_folder));
  const bool is_online = !recipe().data.raw_path.empty();
  const bool paints = recipe().samples.every_steps > 0 && !recipe().samples.prompts.empty();
  DARKROOM_ASSIGN_OR_RETURN(const auto dialect, parse_tokenizer_dialect(recipe().data.tokenizer_dialect));
  if (is_online || paints) {
    DARKROOM_ASSIGN_OR_RETURN(frozen_, load_frozen_models(files_, recipe().model.path, dialect));
  }
  DARKROOM_ASSIGN_OR_RETURN(const SampleShapes shapes, sample_shapes(unet->config(), recipe().data.resolution, frozen_.get()));
  if (is_online) {
    DARKROOM_ASSIGN_OR_RETURN(data_, open_online(files_, recipe(), shapes, frozen_));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(data_, open_latents(files_, recipe(), shapes, frozen_.get()));
  }
  const DiffusionObjectiveOptions objective{.seed = static_cast<uint64_t>(recipe().runtime.seed),
                                            .caption_drop = recipe().objective.caption_dropout,
                                            .min_snr_gamma = recipe().objective.min_snr_gamma};
  auto part = std::make_unique<UNetPart>(std::move(unet), DiffusionObjective(NoiseSchedule(noise), objective, data_.empty_states_tw));
  if (!recipe().validation.path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(validation_, make_diffusion_validation(files_, recipe(), *part, shapes, frozen_.get()));
  }
  if (paints) {
    DARKROOM_ASSIGN_OR_RETURN(previews_, make_prompt_previews(recipe(), *part, frozen_));
  }
  part_ = std::move(part);
  return {};
}

Status TrainingRun::open_autoencoder(const std::string& weights_folder) {
  constexpr int64_t kPreviewRows = 8;
  DARKROOM_ASSIGN_OR_RETURN(auto vae, make_starting_vae(files_, recipe(), weights_folder));
  if (recipe().data.resolution % vae->config().factor() != 0) {
    return Status::invalid_argument("the recipe's data.resolution must be a multiple of the VAE's factor (factor, resolution):",
                                    vae->config().factor(), recipe().data.resolution);
  }
  DARKROOM_ASSIGN_OR_RETURN(data_, open_pictures(files_, recipe()));
  const AutoencoderObjectiveOptions objective{.seed = static_cast<uint64_t>(recipe().runtime.seed),
                                              .l1_weight = recipe().objective.l1_weight,
                                              .mse_weight = recipe().objective.mse_weight,
                                              .log_mse_weight = recipe().objective.log_mse_weight,
                                              .kl_weight = recipe().objective.kl_weight};
  auto part = std::make_unique<VaePart>(std::move(vae), AutoencoderObjective(objective));
  if (!recipe().validation.path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(validation_, make_autoencoder_validation(files_, recipe(), *part));
  }
  if (recipe().samples.every_steps > 0) {
    // Rows spread over the dataset, always the same ones.
    std::vector<SampleRef> rows;
    const int64_t count = std::min(kPreviewRows, data_.index.num_rows());
    for (int64_t i = 0; i < count; ++i) {
      rows.push_back({0, i * data_.index.num_rows() / count});
    }
    DARKROOM_ASSIGN_OR_RETURN(const Batch shown, data_.source->read(rows));
    previews_ = make_reconstruction_previews(*part, shown.images_nchw, shown.keys);
  }
  part_ = std::move(part);
  return {};
}

Status TrainingRun::open_optimizer() {
  parameters_ = std::make_unique<FlatParameters>(part_->module());
  const AdamWOptions adamw_options = adamw(recipe());
  DARKROOM_RETURN_IF_ERROR(adamw_options.validate());
  optimizer_ = std::make_unique<AdamW>(*parameters_, adamw_options);
  const EmaOptions ema_options{.decay = recipe().ema.decay, .warmup = recipe().ema.warmup};
  DARKROOM_RETURN_IF_ERROR(ema_options.validate());
  ema_ = std::make_unique<Ema>(*parameters_, ema_options);
  const TrainStepOptions step_options{.micro_batch = recipe().batch.micro,
                                      .workers = num_workers(recipe()),
                                      .max_grad_norm = recipe().optimizer.clip_norm,
                                      .schedule = lr_schedule(recipe())};
  DARKROOM_RETURN_IF_ERROR(step_options.validate());
  train_step_ = std::make_unique<TrainStep>(*parameters_, *optimizer_, ema_.get(), step_options);
  state_ = std::make_unique<TrainingState>(TrainingState{
      *parameters_, *optimizer_, *ema_, [this](FileSystem& files, const std::string& folder) { return part_->save(files, folder); }});
  return {};
}

Status TrainingRun::restore_or_begin() {
  index_hash_ = data_.index.hash();
  if (resumed_.has_value()) {
    DARKROOM_RETURN_IF_ERROR(check_continuation(resumed_->record, record()));
    DARKROOM_RETURN_IF_ERROR(restore_training_state(resumed_->place.path, resumed_->record, *state_));
    steps_done_ = resumed_->record.step;
    saved_step_ = steps_done_;
    log_info("going on from {} (step {} of {})", resumed_->place.path, steps_done_, max_steps());
  }
  const OrderSpec spec{.seed = static_cast<uint64_t>(recipe().runtime.seed),
                       .num_lanes = recipe().runtime.lanes,
                       .batch_size = recipe().batch.global,
                       .window_blocks = recipe().data.window_blocks};
  DARKROOM_ASSIGN_OR_RETURN(auto order, CanonicalOrder::create(data_.index.block_rows(), spec));
  const BatcherOptions ahead{.first_batch = resumed_.has_value() ? resumed_->record.batch_number : 0, .num_ahead = data_.num_ahead};
  batcher_ = std::make_unique<Batcher>(std::move(order), std::move(data_.source), ahead);
  return {};
}

Status TrainingRun::open_outputs() {
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, in_folder(kRunRecipeFile), recipe_to_toml(recipe())));
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, in_folder(kRunIndexFile), data_.index.to_json()));
  DARKROOM_ASSIGN_OR_RETURN(metrics_, MetricsLog::open(files_, in_folder(kRunMetricsFile), steps_done_));
  const RunFacts facts{.component = part_->component(), .parameters = parameters_->size(), .recipe = recipe()};
  DARKROOM_ASSIGN_OR_RETURN(facts_, RunFactsFile::open(files_, in_folder(kRunFactsFile), facts, steps_done_, metrics_->seconds_before()));
  DARKROOM_ASSIGN_OR_RETURN(events_, EventWriter::open(files_, folder_, steps_done_));
  if (!options_.trace_path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(trace_, TraceWriter::begin(files_, options_.trace_path, options_.trace_steps, *parameters_));
  }
  progress_ = std::make_unique<ProgressLine>(max_steps(), recipe().batch.global);
  log_info("training {} ({:.2f} M parameters) on {} rows: steps {} to {}, {} samples each", part_->component(),
           static_cast<double>(parameters_->size()) / kMillion, data_.index.num_rows(), steps_done_ + 1, max_steps(),
           recipe().batch.global);
  return {};
}

CheckpointRecord TrainingRun::record() const {
  CheckpointRecord record;
  record.step = steps_done_;
  record.samples = steps_done_ * recipe().batch.global;
  record.batch_number = steps_done_;
  record.optimizer_updates = optimizer_->num_updates();
  record.component = part_->component();
  record.index_hash = index_hash_;
  record.recipe = recipe_to_toml(recipe());
  record.frozen_path = recipe().model.path;
  if (!data_.vae_fingerprint.empty()) {
    record.frozen_fingerprints["vae"] = data_.vae_fingerprint;
  }
  if (!data_.text_encoder_fingerprint.empty()) {
    record.frozen_fingerprints["text_encoder"] = data_.text_encoder_fingerprint;
  }
  record.tokenizer_dialect = data_.tokenizer_dialect;
  return record;
}

Result<StepTimes> TrainingRun::step() {
  const auto start = Clock::now();
  DARKROOM_ASSIGN_OR_RETURN(const Batch batch, batcher_->next());
  StepTimes times;
  times.data_ms = milliseconds_since(start);
  const auto losses = [&](int64_t first, int64_t count) { return part_->losses(batch, first, count); };
  auto report = train_step_->run(steps_done_, static_cast<int64_t>(batch.samples.size()), losses);
  if (!report.is_ok()) {
    return name_bad_samples(report.status(), batch);
  }
  times.report = *report;
  steps_done_ += 1;
  if (trace_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(trace_->add(*part_, batch, times.report, *parameters_));
  }
  return times;
}

// The failure of a step with the rows whose loss was not finite.
Status TrainingRun::name_bad_samples(const Status& failure, const Batch& batch) const {
  constexpr size_t kShown = 3;
  const auto& bad = train_step_->non_finite_samples();
  if (bad.empty()) {
    return failure.with_context("the loss of every sample was finite; try a lower optimizer.lr or optimizer.clip_norm");
  }
  std::vector<std::string> places;
  for (size_t i = 0; i < std::min(kShown, bad.size()); ++i) {
    places.push_back(batcher_->describe(batch.samples[static_cast<size_t>(bad[i])].row));
  }
  const bool is_data = bad.size() < batch.samples.size();
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
  if (validation_ != nullptr && is_due(recipe().validation.every_steps)) {
    const EmaScope averaged(*parameters_, *ema_);
    DARKROOM_ASSIGN_OR_RETURN(scores, validation_->score());
    log_info("step {}: {}", steps_done_, scores.dump());
  }
  if (is_due(recipe().runtime.log_every) || !scores.empty()) {
    DARKROOM_RETURN_IF_ERROR(log_step(times, scores));
  }
  progress_->show(steps_done_, times);
  if (previews_ != nullptr && is_due(recipe().samples.every_steps)) {
    const EmaScope averaged(*parameters_, *ema_);
    const std::string folder = join_path(in_folder(kRunSamplesFolder), checkpoint_name(steps_done_));
    DARKROOM_RETURN_IF_ERROR(previews_->make(files_, folder, steps_done_, *events_));
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
      {"ms", {{"data", times.data_ms}, {"forward", report.forward_ms}, {"backward", report.backward_ms}, {"optimizer", report.update_ms}}}};
  line.update(scores);
  DARKROOM_RETURN_IF_ERROR(metrics_->append(line));
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/loss", static_cast<float>(report.loss)));
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/grad_norm", static_cast<float>(report.grad_norm)));
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/lr", static_cast<float>(report.learning_rate)));
  DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "train/images_per_second", static_cast<float>(rate)));
  for (const auto& [name, value] : scores.items()) {
    DARKROOM_RETURN_IF_ERROR(events_->add_scalar(steps_done_, "validation/" + name, value.get<float>()));
  }
  return {};
}

Status TrainingRun::save() {
  if (saved_step_ == steps_done_) {
    return {};
  }
  // Lines up to a checkpoint's step must be there when the run goes on from it.
  DARKROOM_RETURN_IF_ERROR(metrics_->sync());
  DARKROOM_RETURN_IF_ERROR(events_->sync());
  const std::string folder = in_folder(kRunCheckpointsFolder);
  DARKROOM_RETURN_IF_ERROR(save_checkpoint(files_, folder, record(), *state_));
  saved_step_ = steps_done_;
  DARKROOM_RETURN_IF_ERROR(facts_->write(steps_done_, wall_seconds()));
  return prune_checkpoints(files_, folder, recipe().checkpoint.keep_last, recipe().checkpoint.keep_every);
}

Status TrainingRun::run(const std::stop_token& stop) {
  const auto start = Clock::now();
  while (steps_done_ < max_steps()) {
    if (stop.stop_requested()) {
      DARKROOM_RETURN_IF_ERROR(save());
      return Status::cancelled("stopped on request; the same command goes on from the checkpoint of step:", steps_done_);
    }
    DARKROOM_ASSIGN_OR_RETURN(const StepTimes times, step());
    DARKROOM_RETURN_IF_ERROR(after_step(times));
    seconds_here_ = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (trace_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(trace_->finish());
  }
  DARKROOM_RETURN_IF_ERROR(save());
  DARKROOM_RETURN_IF_ERROR(metrics_->sync());
  seconds_here_ = std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

Status TrainingRun::sum_up(TrainSummary& summary) const {
  summary.parameters = parameters_->size();
  summary.steps = steps_done_;
  summary.samples = steps_done_ * recipe().batch.global;
  summary.rows = data_.index.num_rows();
  summary.seconds = seconds_here_;
  summary.images_per_second = steps_here_ == 0 ? 0 : 1000.0 * static_cast<double>(steps_here_ * recipe().batch.global) / step_ms_here_;
  DARKROOM_ASSIGN_OR_RETURN(const std::string metrics, read_file(files_, in_folder(kRunMetricsFile)));
  std::tie(summary.loss_first, summary.loss_last) = first_and_last_loss(metrics);
  return {};
}

}  // namespace darkroom
