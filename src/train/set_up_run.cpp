#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/claim.h"
#include "darkroom/files/folder_lock.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/stores/model_copy.h"
#include "darkroom/tensor/device.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/intra_op_threads.h"
#include "darkroom/tensor/matrix_peak.h"
#include "darkroom/train/run_files.h"
#include "darkroom/train/training_plan.h"
#include "resume_point.h"
#include "step_settings.h"
#include "training_run.h"

namespace darkroom {
namespace {

constexpr int64_t kMillion = 1'000'000;

// A machine with n ranks is counted by each of them as an nth.
Result<int64_t> count_machines(Communicator& ranks, int64_t local_ranks) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> neighbours, gather_numbers(ranks, local_ranks));
  double machines = 0;
  for (const int64_t count : neighbours) {
    machines += 1.0 / static_cast<double>(count);
  }
  return std::max<int64_t>(1, std::llround(machines));
}

// float32 means float32, and --deterministic the libraries of a GPU, too: cuBLAS repeats its bits with a workspace of a fixed size, which
// it and torch read from the environment at the first product; who has set it keeps what was set. Else cuDNN tries its ways of a
// convolution and takes the fastest, which costs the first steps: shapes stay.
void set_up_libraries(const TrainOptions& options) {
  at::set_num_threads(static_cast<int>(options.recipe.runtime.threads));
  at::Context& context = at::globalContext();
  if (options.deterministic) {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  }
  context.setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // Nothing is read before it is written.
  context.setDeterministicCuDNN(options.deterministic);
  context.setBenchmarkCuDNN(!options.deterministic && options.device != "cpu");
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
}

// Where the frozen parts lie: on a run's GPU they encode as process does there, or decode previews in float32. Beside encoders elsewhere
// they stay on the CPU, so that all ranks know one empty caption.
NetworkPlace frozen_place(const torch::Device& device, bool encodes, bool decodes) {
  return encodes || decodes ? NetworkPlace{.device = device, .type = encodes && !device.is_cpu() ? torch::kFloat16 : torch::kFloat32}
                            : NetworkPlace();
}

// Memory of the GPU that the step runs on, else of this machine; 0: nobody knows.
int64_t memory_of_device(const torch::Device& device) {
  if (device.is_cpu()) {
    return usable_memory_bytes();
  }
  const auto& gpus = list_gpus();
  const auto index = static_cast<size_t>(std::max<int>(0, device.index()));
  return gpus.is_ok() && index < gpus->size() ? static_cast<int64_t>((*gpus)[index].memory_bytes) : 0;
}

AdamWOptions adamw(const Recipe& recipe) {
  const auto& optimizer = recipe.optimizer;
  return {.beta1 = optimizer.beta1, .beta2 = optimizer.beta2, .epsilon = optimizer.epsilon, .weight_decay = optimizer.weight_decay};
}

// Whether a file of a model folder, by its path in it, holds weights of a component.
bool is_weight_of(const std::string& name, const std::string& component) {
  return name.starts_with(component + "/") && name.ends_with(".safetensors");
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

DatasetSize dataset_size(const std::string& uri, const RunData& data, int64_t row_bytes) {
  return {.name = recorded_uri(uri),
          .num_rows = data.index.num_rows(),
          .num_blocks = static_cast<int64_t>(data.index.block_rows().size()),
          .row_bytes = row_bytes,
          .row_groups = data.row_groups};
}

// Only a warning: bytes of pictures are known as an average, and a run that reads some of them again is slow, not wrong.
void warn_of_large_window(const Recipe& recipe, const RunData& data, int64_t num_ranks) {
  const int64_t row_bytes = 2 * data.image_row_bytes;  // As much again keeps what is made of the pictures.
  const Status checked = check_window_memory(recipe, dataset_size(recipe.data.raw_path, data, row_bytes), num_ranks);
  if (!checked.is_ok()) {
    log_warning("{} (half of it keeps what is made of the pictures); the run goes on, slowly", checked.message());
  }
}

}  // namespace

Result<std::unique_ptr<TrainingRun>> TrainingRun::create(FileSystem& files, StoreSet& stores, const TrainOptions& options,
                                                         const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (!options.recipe.data.raw_path.empty() && options.encoders.empty()) {
    DARKROOM_RETURN_IF_ERROR(check_decoder(options.decoder_program, kAnySize, stop));
  }
  set_up_libraries(options);
  if (options.ranks->rank() != 0) {
    std::unique_ptr<TrainingRun> other(new TrainingRun(files, stores, options, stop));
    DARKROOM_RETURN_IF_ERROR(other->set_up());
    return other;
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location output, stores.resolve(options.output, Access::kWrite));
  const auto local = output.store->local_path(output.path);
  DARKROOM_ASSIGN_OR_RETURN(const bool was_there, local ? files.exists(*local) : Result<bool>(true));
  std::unique_ptr<TrainingRun> run(new TrainingRun(files, stores, options, stop));
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
    const auto is_lock = [&](const FileInfo& entry) { return entry.path == in_folder(kRunLockFile); };
    if (left.is_ok() && std::ranges::all_of(*left, is_lock)) {
      static_cast<void>(files_.remove_tree(folder));
    }
  }
}

Status TrainingRun::set_up() {
  if (is_main()) {
    DARKROOM_RETURN_IF_ERROR(open_folder());
    DARKROOM_RETURN_IF_ERROR(check_for_lost_checkpoints());
  } else {
    options_.init_from.clear();  // Rank 0 reads it.
  }
  options_.recipe.data.memory_bytes = memory_of_rank(options_.recipe.data.memory_bytes, options_.local_ranks);
  DARKROOM_RETURN_IF_ERROR(fetch_inputs());
  if (options_.counts_work) {
    count_work();
    find_peak();
  }
  DARKROOM_RETURN_IF_ERROR(read_index());
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
  if (options_.metrics != nullptr) {
    shown_ = std::make_unique<TrainMetrics>(*options_.metrics, TrainMetricsFacts{.rank = ranks().rank(),
                                                                                 .num_ranks = ranks().size(),
                                                                                 .last_step = last_step(),
                                                                                 .batch_size = recipe().batch.global,
                                                                                 .rank_samples = own_samples().count,
                                                                                 .step_flop = step_flop_,
                                                                                 .rank_tflops = peak_.tflops,
                                                                                 .device = device()});
  }
  return is_main() ? open_outputs() : Status::ok();
}

// What the run reads as files of this machine: the model folder and the weights that it starts from.
Status TrainingRun::fetch_inputs() {
  Recipe& local = options_.recipe;
  const std::string trained = local.objective.kind == "diffusion" ? "unet" : "vae";
  const bool needs_weights = local.model.start == "weights" && !resumed_.has_value();
  const auto is_needed = [&](const std::string& name) { return needs_weights || !is_weight_of(name, trained); };
  DARKROOM_ASSIGN_OR_RETURN(model_copy_, fetch_model_files(stores_, local.model.path, is_needed, stop_));
  local.model.path = model_copy_->path();
  if (!options_.init_from.empty() && !resumed_.has_value()) {
    DARKROOM_ASSIGN_OR_RETURN(init_copy_, fetch_model_files(stores_, options_.init_from, {}, stop_));
    options_.init_from = init_copy_->path();
  }
  return {};
}

// For the figures of a run, from the model that is here by now. What cannot be counted cannot begin either, and the run itself says why.
void TrainingRun::count_work() {
  try {
    if (const Result<double> flop = count_step_flop(stores_, recipe(), stop_); flop.is_ok()) {
      step_flop_ = *flop;
    }
  } catch (const std::exception& failure) {
    const std::string text = failure.what();
    log_detail("train: what a step computes is not known, and the run goes on without: {}", text.substr(0, text.find('\n')));
  }
}

// Where nothing is known of the work, nothing is a share of the peak. That of processors is what all threads of a step reach together.
void TrainingRun::find_peak() {
  if (options_.rank_tflops > 0) {
    peak_ = {.tflops = options_.rank_tflops, .is_measured = false};
  } else if (step_flop_ > 0) {
    const torch::ScalarType type = flat_options(recipe(), device()).compute_type;
    try {
      const int64_t side_by_side = passes_at_a_time(recipe(), device(), own_samples().count, options_.local_ranks);
      const IntraOpThreads of_step(static_cast<int>(recipe().runtime.threads * side_by_side));
      const MatrixPeak peak = measure_matrix_peak(device(), type);
      const std::string threads = device().is_cpu() ? fmt::format(" by {} threads", at::get_num_threads()) : "";
      reset_peak_memory(device());  // It is not the run's.
      peak_ = {.tflops = peak.tflops()};
      if (is_main()) {
        log_info(
            "train: {} does {:.3g} TFLOP/s in products of {} matrices of {} x {}{}, of which MFU is the share; --tflops names another peak",
            options_.device, peak_.tflops, precision_on(recipe(), device()), peak.side, peak.side, threads);
      }
    } catch (const c10::Error& failure) {  // The GPU has no memory for it, perhaps.
      log_detail("train: the peak of {} is not known, and the run goes on without: {}", options_.device, failure.what_without_backtrace());
    }
  }
}

// What the run that goes on began with: rank 0 has its folder, and all must read the same parts. Where there is none, check_continuation
// says whether the dataset is still the same.
Status TrainingRun::read_index() {
  DARKROOM_ASSIGN_OR_RETURN(const std::string own, index_in_folder());
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, broadcast_text(ranks(), 0, own));
  if (!text.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(index_, DatasetIndex::from_json(text));
  }
  return {};
}

// Empty where the run begins, and where the file is lost or not that of the checkpoint.
Result<std::string> TrainingRun::index_in_folder() const {
  if (!resumed_.has_value()) {
    return std::string();
  }
  const Result<std::string> text = remote_ != nullptr ? remote_->read_index() : read_file(files_, in_folder(kRunIndexFile));
  if (!text.is_ok()) {
    return text.status().code() == StatusCode::kNotFound ? Result<std::string>(std::string()) : text.status();
  }
  const auto index = DatasetIndex::from_json(*text);
  return index.is_ok() && index->hash() == resumed_->record.index_hash ? *text : std::string();
}

Status TrainingRun::open_folder() {
  recorded_ = options_.recipe;
  for (std::string* place : {&recorded_.model.path, &recorded_.data.path, &recorded_.data.raw_path, &recorded_.validation.path}) {
    *place = recorded_uri(*place);
  }
  if (options_.resume != "auto" && options_.resume != "none") {
    DARKROOM_ASSIGN_OR_RETURN(const Location place, stores_.resolve(options_.resume, Access::kRead));
    auto copy = LocalCopy::fetch(place, {.takes = {}, .wanted_bytes = {}, .stop = stop_});
    resumed_from_ = recorded_uri(options_.resume);
    // Of a restart takes_newest() judges: the address stays, at which this machine has nothing either.
    if (!options_.is_restart || copy.status().code() != StatusCode::kNotFound) {
      DARKROOM_ASSIGN_OR_RETURN(resume_copy_, std::move(copy));
      options_.resume = resume_copy_->path();
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location output, stores_.resolve(options_.output, Access::kWrite));
  if (auto local = output.store->local_path(output.path)) {
    folder_ = *std::move(local);
    return open_local_folder();
  }
  return open_remote_folder(output);
}

Status TrainingRun::open_remote_folder(const Location& output) {
  constexpr std::chrono::minutes kOfALostStart = kClaimLifetime + std::chrono::minutes(1);
  const std::chrono::minutes patience = options_.is_restart ? kOfALostStart : std::chrono::minutes(0);
  DARKROOM_ASSIGN_OR_RETURN(remote_, RemoteRun::open(output, *options_.clock, stop_, patience));
  folder_ = remote_->spool();
  DARKROOM_ASSIGN_OR_RETURN(const int64_t newest, remote_->newest_step());
  DARKROOM_ASSIGN_OR_RETURN(const bool is_newest, takes_newest(files_, options_, newest));
  if (is_newest) {
    resumed_from_.clear();
    DARKROOM_ASSIGN_OR_RETURN(resumed_, remote_->fetch_newest_checkpoint());
    is_resumed_from_here_ = resumed_.has_value();
    if (resumed_.has_value()) {
      resumed_from_ = remote_->checkpoint_uri(resumed_->record.step);
      DARKROOM_RETURN_IF_ERROR(check_same_run(options_.recipe, *resumed_));
    }
  } else if (options_.resume == "none" && newest >= 0) {
    return starts_over(remote_->checkpoint_uri(newest));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(ResumePoint point, find_resume_point(files_, in_folder(kRunCheckpointsFolder), options_));
    resumed_ = std::move(point.found);
    if (resumed_.has_value() && newest > resumed_->record.step) {
      return newer_checkpoint(remote_->checkpoint_uri(newest));
    }
    if (resumed_.has_value() && newest == resumed_->record.step) {
      DARKROOM_ASSIGN_OR_RETURN(is_resumed_from_here_, is_in_store(*resumed_));
    }
  }
  return remote_->fetch_metrics(resumed_.has_value() ? resumed_->record.step : 0);
}

// Whether the remote run folder's checkpoint of that step is the one found here.
Result<bool> TrainingRun::is_in_store(const FoundCheckpoint& found) {
  const std::string own = remote_->checkpoint_uri(found.record.step);
  if (without_trailing_slashes(resumed_from_) == own) {  // It was fetched from there.
    return true;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string record, read_file(files_, join_path(found.place.path, kCheckpointRecordFile)));
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<std::string> stored, remote_->fetch_valid_record(found.record.step));
  return !stored.has_value() || *stored == record ? Result<bool>(stored.has_value()) : another_checkpoint(own);
}

// The folder's own lock, or that of a file in it where only files have some (NFS). Null, with a warning, where there are none.
Result<std::unique_ptr<FileLock>> TrainingRun::lock_local_folder() {
  constexpr const char* kHeld = "another process is training in this run folder; wait for it or take another --output:";
  constexpr std::chrono::minutes kOfALostMachine{2};  // NFS: its server gives up what has not been renewed for 90 s.
  DARKROOM_ASSIGN_OR_RETURN(auto lock, lock_folder(files_, folder_, kHeld));
  if (lock != nullptr) {
    return lock;
  }
  const std::string path = in_folder(kRunLockFile);
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files_.open_append(path));
  DARKROOM_RETURN_IF_ERROR(file->close());
  if (options_.is_restart) {
    DARKROOM_RETURN_IF_ERROR(await_unlocked(files_, path, kHeld, kOfALostMachine, stop_, *options_.clock));
  }
  DARKROOM_ASSIGN_OR_RETURN(lock, lock_folder(files_, path, kHeld));
  if (lock == nullptr) {
    log_warning("the run folder is on a file system without locks, so that another process which trains in it is not refused: {}", folder_);
  }
  return lock;
}

Status TrainingRun::open_local_folder() {
  DARKROOM_RETURN_IF_ERROR(files_.create_folders(in_folder(kRunCheckpointsFolder)));
  DARKROOM_ASSIGN_OR_RETURN(lock_, lock_local_folder());
  DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files_, folder_));
  DARKROOM_RETURN_IF_ERROR(sweep_unpublished(files_, in_folder(kRunCheckpointsFolder)));
  DARKROOM_ASSIGN_OR_RETURN(ResumePoint point, find_resume_point(files_, in_folder(kRunCheckpointsFolder), options_));
  resumed_ = std::move(point.found);
  is_resumed_from_here_ = point.is_own;
  if (resumed_.has_value() && resumed_->place.path != without_trailing_slashes(options_.resume)) {  // A restart's own.
    resumed_from_.clear();
  }
  return {};
}

// A run that goes on has its latents already, as they are.
Status TrainingRun::check_data() const {
  if (!data_.unfit.is_ok() && steps_done_ == 0) {
    return data_.unfit;
  }
  if (!data_.unfit.is_ok() && is_main()) {
    log_warning("{}; the run has begun so, and goes on", data_.unfit.message());
  }
  if (!data_.doubt.is_ok() && is_main()) {
    log_warning("{}", data_.doubt.message());
  }
  return {};
}

// A run that goes on may be slow: the order of its samples depends on both fields of the window, so that neither can be changed any more.
Status TrainingRun::check_window() const {
  if (least_row_bytes_ == 0) {
    if (is_main() && data_.image_row_bytes > 0) {
      warn_of_large_window(recipe(), data_, ranks().size());
    }
    return {};
  }
  const DatasetSize dataset = dataset_size(recipe().data.path, data_, least_row_bytes_);
  if (dataset.num_blocks < recipe().runtime.lanes && is_main()) {
    log_info("the recipe's field 'runtime.lanes' is {}, and the dataset has {} blocks of at most {} rows: so many lanes are used",
             recipe().runtime.lanes, dataset.num_blocks, DatasetIndex::kRowsPerBlock);
  }
  const Status checked = check_window_memory(recipe(), dataset, ranks().size());
  if (checked.is_ok() || steps_done_ == 0) {
    return checked;
  }
  if (is_main()) {
    log_warning("{}; the run has begun so, and goes on", checked.message());
  }
  return {};
}

Status TrainingRun::open_diffusion(const std::string& weights_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const NoiseScheduleConfig noise, make_noise_config(recipe()));
  DARKROOM_ASSIGN_OR_RETURN(auto unet, make_starting_unet(files_, recipe(), weights_folder));
  const bool is_online = !recipe().data.raw_path.empty();
  const bool paints = is_main() && has_previews();
  DARKROOM_ASSIGN_OR_RETURN(const auto dialect, parse_tokenizer_dialect(recipe().data.tokenizer_dialect));
  if (is_online || paints) {
    const NetworkPlace place = frozen_place(device(), is_online && options_.encoders.empty(), !is_online);
    DARKROOM_ASSIGN_OR_RETURN(frozen_, load_frozen_models(files_, recipe().model.path, dialect, place));
  }
  DARKROOM_ASSIGN_OR_RETURN(SampleShapes shapes, sample_shapes(unet->config(), recipe().data.resolution, frozen_.get()));
  shapes.keeps_float16 = !device().is_cpu();
  if (is_online && !options_.encoders.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(data_, open_remote(stores_, recipe(), shapes, frozen_, fleet_options(), began_with()));
    remote_source_ = data_.remote;
  } else if (is_online) {
    DARKROOM_ASSIGN_OR_RETURN(data_, open_online(stores_, recipe(), shapes, frozen_, options_.decoder_program, began_with()));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(data_, open_latents(stores_, recipe(), shapes, frozen_.get()));
    constexpr int64_t kLeastBytes = 2;  // float16.
    least_row_bytes_ = kLeastBytes * (c10::multiply_integers(shapes.latents) + c10::multiply_integers(shapes.states));
  }
  const DiffusionObjectiveOptions objective{.seed = static_cast<uint64_t>(recipe().runtime.seed),
                                            .caption_drop = recipe().objective.caption_dropout,
                                            .min_snr_gamma = recipe().objective.min_snr_gamma};
  const torch::Tensor empty = data_.empty_states_tw.defined() ? data_.empty_states_tw.to(device()) : torch::Tensor();
  auto part = std::make_unique<UNetPart>(std::move(unet), DiffusionObjective(NoiseSchedule(noise), objective, empty), device());
  if (is_main() && validates()) {
    DARKROOM_ASSIGN_OR_RETURN(validation_, make_diffusion_validation(stores_, recipe(), *part, shapes, frozen_.get(), data_));
  }
  if (paints) {
    DARKROOM_ASSIGN_OR_RETURN(previews_, make_prompt_previews(recipe(), *part, frozen_));
  }
  part_ = std::move(part);
  if (remote_source_ != nullptr && !paints) {
    frozen_.reset();  // Encoders elsewhere have theirs; here they only told what these must be.
  }
  return {};
}

SliceFleetOptions TrainingRun::fleet_options() const {
  SliceFleetOptions fleet;
  fleet.encoders = options_.encoders;
  fleet.token = options_.encoder_token;
  fleet.timeout = options_.encoder_timeout;
  fleet.patience = options_.encoder_patience;
  fleet.stop = stop_;
  return fleet;
}

Status TrainingRun::open_autoencoder(const std::string& weights_folder) {
  constexpr int64_t kPreviewRows = 8;
  DARKROOM_ASSIGN_OR_RETURN(auto vae, make_starting_vae(files_, recipe(), weights_folder));
  if (recipe().data.resolution % vae->config().factor() != 0) {
    return Status::invalid_argument("the recipe's data.resolution must be a multiple of the VAE's factor (factor, resolution):",
                                    vae->config().factor(), recipe().data.resolution);
  }
  DARKROOM_ASSIGN_OR_RETURN(data_, open_pictures(stores_, recipe(), options_.decoder_program, began_with()));
  const AutoencoderObjectiveOptions objective{.seed = static_cast<uint64_t>(recipe().runtime.seed),
                                              .l1_weight = recipe().objective.l1_weight,
                                              .mse_weight = recipe().objective.mse_weight,
                                              .log_mse_weight = recipe().objective.log_mse_weight,
                                              .kl_weight = recipe().objective.kl_weight};
  auto part = std::make_unique<VaePart>(std::move(vae), AutoencoderObjective(objective), device());
  if (is_main() && validates()) {
    DARKROOM_ASSIGN_OR_RETURN(validation_, make_autoencoder_validation(stores_, recipe(), *part, options_.decoder_program));
  }
  if (is_main() && has_previews()) {
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

// Before the buffers are made: a machine that has not enough ends processes without a word.
Status TrainingRun::check_memory(const FlatParametersOptions& flat) const {
  const RankMemorySpec spec = rank_memory_spec(recipe(), part_->module(), flat);
  const bool is_cpu = device().is_cpu();
  const RankMemory memory = rank_memory(spec);
  DARKROOM_RETURN_IF_ERROR(check_rank_memory(recipe(), memory, is_cpu ? options_.local_ranks : 1, memory_of_device(device()),
                                             is_cpu ? "this machine" : device().str()));
  return check_snapshot_memory(recipe(), snapshot_bytes(recipe(), memory, spec.flat), is_cpu ? memory.kept() : 0, options_.local_ranks,
                               memory_of_device(torch::kCPU));
}

Status TrainingRun::open_optimizer() {
  FlatParametersOptions flat = flat_options(recipe(), device());
  flat.rank = ranks().rank();
  flat.num_ranks = ranks().size();
  DARKROOM_RETURN_IF_ERROR(check_memory(flat));
  DARKROOM_RETURN_IF_ERROR(share_parameters(ranks(), part_->module()));  // A rank keeps of the master weights what it owns.
  parameters_ = std::make_unique<FlatParameters>(part_->module(), flat);
  const AdamWOptions adamw_options = adamw(recipe());
  DARKROOM_RETURN_IF_ERROR(adamw_options.validate());
  const FlatRange slice = slice_of_rank(parameters_->size(), ranks().rank(), ranks().size());
  optimizer_ = std::make_unique<AdamW>(*parameters_, adamw_options, slice);
  const EmaOptions ema_options{.decay = recipe().ema.decay, .warmup = recipe().ema.warmup};
  DARKROOM_RETURN_IF_ERROR(ema_options.validate());
  ema_ = std::make_unique<Ema>(*parameters_, ema_options, slice);
  const TrainStepOptions step_options = train_step_options(recipe(), device(), options_.local_ranks);
  DARKROOM_RETURN_IF_ERROR(step_options.validate());
  train_step_ = std::make_unique<TrainStep>(*parameters_, *optimizer_, ema_.get(), step_options, ranks());
  const auto save_config = [this](FileSystem& files, const std::string& folder) { return part_->save_config(files, folder); };
  state_ = std::make_unique<TrainingState>(TrainingState{*parameters_, *optimizer_, *ema_, save_config});
  state_->ranks = &ranks();
  if (saves_in_background(recipe())) {
    DARKROOM_ASSIGN_OR_RETURN(saving_ranks_, ranks().twin("saving"));
    snapshot_state_ = std::make_unique<TrainingState>(*state_);
    snapshot_state_->ranks = saving_ranks_.get();
    snapshot_state_->snapshot = &snapshot_.values();
    if (!device().is_cpu()) {
      snapshot_.reserve(*state_);
    }
  }
  return {};
}

Status TrainingRun::restore_or_begin() {
  index_hash_ = data_.index.hash();
  if (resumed_.has_value()) {
    DARKROOM_RETURN_IF_ERROR(check_continuation(resumed_->record, record()));
  }
  DARKROOM_ASSIGN_OR_RETURN(machines_, count_machines(ranks(), options_.local_ranks));
  DARKROOM_RETURN_IF_ERROR(share_beginning());
  DARKROOM_RETURN_IF_ERROR(check_data());  // Every rank knows only now whether the run begins or goes on.
  DARKROOM_RETURN_IF_ERROR(check_window());
  if (resumed_.has_value()) {
    DARKROOM_RETURN_IF_ERROR(restore_training_state(resumed_->place.path, resumed_->record, *state_));
    log_info("going on from {} (step {} of {})", resumed_from_.empty() ? resumed_->place.path : resumed_from_, steps_done_, max_steps());
  }
  const FlatRange samples = own_samples();
  const OrderSpec spec{.seed = static_cast<uint64_t>(recipe().runtime.seed),
                       .num_lanes = recipe().runtime.lanes,
                       .batch_size = recipe().batch.global,
                       .window_blocks = recipe().data.window_blocks};
  DARKROOM_ASSIGN_OR_RETURN(auto order, CanonicalOrder::create(data_.index.block_rows(), spec));
  const BatcherOptions ahead{.first_batch = batch_number_,
                             .first_sample = samples.first,
                             .num_samples = samples.count,
                             .num_ahead = data_.num_ahead,
                             .num_expected = data_.num_expected,
                             .end_batch = last_step()};
  batcher_ = std::make_unique<Batcher>(std::move(order), std::move(data_.source), ahead);
  return {};
}

// What must be the same at all ranks though each reads its own copy, by its name for people.
Result<nlohmann::json> TrainingRun::part_inputs() const {
  const std::string config_file = join_path(join_path(recipe().model.path, part_->component()), "config.json");
  DARKROOM_ASSIGN_OR_RETURN(const std::string config, read_file(files_, config_file));
  return nlohmann::json{{"dataset (index hash)", index_hash_},
                        {"config.json of the " + part_->component(), parse_json(config).dump()},
                        {"VAE (fingerprint)", data_.vae_fingerprint},
                        {"text encoder (fingerprint)", data_.text_encoder_fingerprint},
                        {"tokenizer (fingerprint)", data_.tokenizer_fingerprint},
                        {"tokenizer dialect", data_.tokenizer_dialect}};
}

// Every rank hears of a difference, so that all end by an error of their own and none is started again.
Status TrainingRun::compare_inputs(const nlohmann::json& first, const nlohmann::json& own) {
  Status difference;
  for (const auto& [name, value] : first.items()) {
    if (difference.is_ok() && own.value(name, nlohmann::json()) != value) {
      difference = Status::failed_precondition("this rank reads another input than rank 0 (rank, input, here, at rank 0):", ranks().rank(),
                                               name, own.value(name, nlohmann::json()).dump(), value.dump());
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> differs, gather_numbers(ranks(), difference.is_ok() ? 0 : 1));
  for (size_t rank = 0; rank < differs.size() && difference.is_ok(); ++rank) {
    if (differs[rank] != 0) {
      difference = Status::failed_precondition("a rank reads other inputs than rank 0, as it says itself; the rank:", rank);
    }
  }
  return difference;
}

// Rank 0 says from where the run goes on; moments and averages follow where there are some. Weights are its own since open_optimizer().
Status TrainingRun::share_beginning() {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json inputs, part_inputs());
  nlohmann::json beginning = {{"inputs", inputs}, {"step", 0},          {"batch_number", 0},
                              {"updates", 0},     {"moments_files", 0}, {"is_saved", is_resumed_from_here_}};
  if (resumed_.has_value()) {
    const CheckpointRecord& before = resumed_->record;
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_files, count_moments_files(resumed_->place.path));
    beginning.update({{"step", before.step},
                      {"batch_number", before.batch_number},
                      {"updates", before.optimizer_updates},
                      {"moments_files", num_files}});
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, broadcast_text(ranks(), 0, beginning.dump()));
  beginning = parse_json(text);
  DARKROOM_RETURN_IF_ERROR(compare_inputs(beginning["inputs"], inputs));
  steps_done_ = beginning["step"].get<int64_t>();
  batch_number_ = beginning["batch_number"].get<int64_t>();
  const auto num_moments_files = beginning["moments_files"].get<int64_t>();
  saved_step_ = beginning["is_saved"].get<bool>() ? steps_done_ : -1;  // Another folder's checkpoint is not yet one of this run.
  stored_step_ = saved_step_;
  optimizer_->set_num_updates(beginning["updates"].get<int64_t>());
  if (ranks().rank() != 0) {
    return num_moments_files > 0 ? take_training_state(*state_, num_moments_files) : Status::ok();
  }
  return {};
}

Status TrainingRun::open_logs() {
  LostRecords* lost = remote_ != nullptr ? &lost_records_ : nullptr;  // What a user's own disk has no room for ends the run.
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, in_folder(kRunRecipeFile), recipe_to_toml(recorded_)));
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, in_folder(kRunIndexFile), data_.index.to_json()));
  DARKROOM_ASSIGN_OR_RETURN(metrics_, MetricsLog::open(files_, in_folder(kRunMetricsFile), steps_done_, lost));
  const RunFacts facts{.component = part_->component(),
                       .parameters = parameters_->num_elements(),
                       .ranks = ranks().size(),
                       .device = device().str(),
                       .peak = peak_,
                       .recipe = recorded_};
  const double seconds_before = facts_ == nullptr ? metrics_->seconds_before() : facts_->seconds_before();
  DARKROOM_ASSIGN_OR_RETURN(facts_, RunFactsFile::open(files_, in_folder(kRunFactsFile), facts, steps_done_, seconds_before));
  DARKROOM_ASSIGN_OR_RETURN(events_, EventWriter::open(files_, folder_, steps_done_, lost));
  const std::string ledger = in_folder(kRunGoodputFile);
  if (ledger_ != nullptr) {
    return ledger_->move_to(files_, ledger);
  }
  DARKROOM_ASSIGN_OR_RETURN(ledger_, GoodputLedger::open(files_, ledger, *options_.clock, ledger_began_, steps_done_, lost));
  return {};
}

Status TrainingRun::open_outputs() {
  DARKROOM_RETURN_IF_ERROR(open_logs());
  if (remote_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(remote_->begin(steps_done_, event_file_name(steps_done_)));
  }
  if (!options_.trace_path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(trace_, TraceWriter::begin(files_, options_.trace_path, options_.trace_steps, *parameters_));
  }
  progress_ = std::make_unique<ProgressLine>(last_step(), recipe().batch.global, step_work());
  log_info("training {} ({:.2f} M parameters) on {} in {}, {} rows: steps {} to {}, {} samples each", part_->component(),
           static_cast<double>(parameters_->num_elements()) / kMillion, options_.device, precision_on(recipe(), device()),
           data_.index.num_rows(), steps_done_ + 1, last_step(), recipe().batch.global);
  return {};
}

}  // namespace darkroom
