#include "darkroom/encode/process_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/ingest/decoding_budget.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/ingest/run_items.h"
#include "darkroom/ingest/told_errors.h"
#include "darkroom/stores/model_copy.h"
#include "empty_caption.h"
#include "encoder_of_options.h"
#include "latents_writer.h"
#include "mds_latents_writer.h"
#include "process_picture.h"
#include "process_reader.h"
#include "process_stages.h"
#include "transformed_reader.h"
#include "tried_encoder.h"

namespace darkroom {
namespace {

// Raised whenever the same inputs, models and flags would give other bytes.
constexpr int kProcessAlgorithmVersion = 3;
constexpr size_t kQueueBatches = 2;
constexpr size_t kMaxOpenProcessItems = 64;
constexpr int64_t kSliceBytes = 24 << 20;  // Of pixels that are asked of a transformer at once: enough that a row group is read by few.
constexpr int64_t kLargestSlice = int64_t{1} << 30;
constexpr int64_t kMostSlicesAhead = 256;
constexpr int kRemoteReaders = 2;   // While one is at the end of its item, the other has asked ahead.
constexpr int kEncodersOfAGpu = 2;  // While one waits for its batch, the other has asked for the next.

struct WorkerCounts {
  int readers;
  int transformers;
  int encoders;
  int writers;
};

WorkerCounts choose_workers(const ProcessOptions& options) {
  const auto choose = [](int asked, int automatic) { return asked > 0 ? asked : std::max(1, automatic); };
  return {.readers = choose(options.num_readers, options.transformers.empty() ? 1 : kRemoteReaders),
          .transformers = choose(options.num_transformers, num_processors() / 2),
          .encoders =
              choose(options.num_encoders, options.place.device.is_cpu() ? num_processors() / options.encoder_threads : kEncodersOfAGpu),
          .writers = std::clamp(num_processors() / 8, 2, 8)};
}

std::string_view latents_kind_name(LatentsKind kind) { return kind == LatentsKind::kSample ? "sample" : "moments"; }

std::string_view text_kind_name(TextKind kind) {
  return kind == TextKind::kEmbeddings ? "embeddings" : kind == TextKind::kTokens ? "tokens" : "both";
}

JobIdentity make_identity(const ProcessOptions& options, const FrozenModels& models) {
  nlohmann::json fields = {{"algorithm_version", kProcessAlgorithmVersion},
                           {"batch_size", batch_size_of(options)},
                           {"latents", latents_kind_name(options.latents)},
                           {"text", text_kind_name(options.text)},
                           {"dtype", storage_dtype(options) == torch::kFloat16 ? "float16" : "float32"},
                           {"compute_dtype", float_type_name(options.place.type)},
                           {"device", options.place.device_class()},
                           {"seed", options.seed},
                           {"encoder_threads", options.encoder_threads},
                           {"tokenizer_dialect", tokenizer_dialect_name(options.tokenizer_dialect)},
                           {"tokenizer", models.tokenizer->fingerprint()},
                           {"vae", models.vae_fingerprint},
                           {"text_encoder", models.text_encoder_fingerprint}};
  fields.update(describe_transform(options.transform));
  if (options.dialect == LatentsDialect::kHuggingFace) {
    fields["features"] = 2;  // Where the parts hold them; first in the footer alone, where datasets does not look.
  }
  if (go_together(options)) {
    fields["batching"] = "together";
  }
  if (!options.caption_column.empty()) {
    fields["caption_column"] = options.caption_column;
  }
  if (!options.keep_columns.empty()) {
    fields["keep_columns"] = options.keep_columns;
  }
  if (options.dialect != LatentsDialect::kDarkroom) {
    fields["output_dialect"] = latents_dialect_name(options.dialect);
  }
  return {.verb = "process",
          .fields = std::move(fields),
          .rows_per_file = options.rows_per_file,
          .container = options.dialect == LatentsDialect::kMosaicMl ? PartContainer::kMds : PartContainer::kParquet};
}

size_t num_elements(const std::vector<int64_t>& shape) {
  size_t product = 1;
  for (const int64_t extent : shape) {
    product *= static_cast<size_t>(extent);
  }
  return product;
}

RowBytes row_bytes_of(const RowEncoder& encoder) {
  const RowEncoderOptions& options = encoder.options();
  const size_t num_values = num_elements(encoder.latents_shape()) + (options.with_states ? num_elements(encoder.states_shape()) : 0);
  return {.prepared = square_bytes(options.transform), .encoded = num_values * torch::elementSize(options.dtype)};
}

/// The transformers of a job, by what they must have alike.
SliceFleetOptions fleet_of(const JobRun& run, const ProcessOptions& options) {
  const RowTransform how{.transform = options.transform, .seed = options.seed};
  return {.encoders = options.transformers,
          .token = options.transformer_token,
          .facts = transform_facts(run.plan().inputs(), how, options.caption_column, options.keep_columns),
          .max_slice_bytes = kLargestSlice,
          .timeout = options.transformer_timeout,
          .patience = options.transformer_patience,
          .names = transformer_names()};
}

/// What the workers of one run share: read -> transform -> encode -> write.
class ProcessParts {
 public:
  ProcessParts(JobRun& run, const ProcessOptions& options, const RowEncoder& encoder, const LatentsLayout& layout)
      : run_(run),
        options_(options),
        encoder_(encoder),
        layout_(layout),
        reading_{.batch_size = batch_size_of(options),
                 .row_bytes = row_bytes_of(encoder),
                 .kept = options.keep_columns,
                 .caption_column = options.caption_column} {}

  Status execute(std::stop_token stop, StageSummary& summary) {
    // Forms that Arrow writes are joined once more.
    const size_t num_copies = layout_.form() == TensorForm::kFixedShape ? 1 : 2;
    const size_t writer_bytes = num_copies * kLatentsGroupRows * reading_.row_bytes.encoded + upload_bytes(run_.output());
    const ItemMemory memory = plan_memory(options_.memory_bytes, writer_bytes);
    if (layout_.dialect == LatentsDialect::kMosaicMl) {
      DARKROOM_ASSIGN_OR_RETURN(scratch_, open_mds_scratch(run_.output()));
    }
    BodyMemory intake(memory.intake_bytes + memory.body_bytes);
    decoding_.emplace(memory.work_bytes);
    if (is_remote()) {
      remote_ = plan_remote(memory);
    }
    BoundedQueue<ProcessPiece> prepared(kQueueBatches);  // After a stop it keeps its pieces, which hold leases of `intake`.
    const ItemPipelineOptions pipeline{.num_readers = workers_.readers,
                                       .num_writers = workers_.writers,
                                       .max_open_items = kMaxOpenProcessItems,
                                       .max_started_items = memory.max_started_items,
                                       .queue_pieces = kQueueBatches,
                                       .trace = options_.trace};
    const Status ended =
        run_items("process", run_, make_job(prepared), intake, nullptr, pipeline, options_.metrics, std::move(stop), summary);
    tell_of_transformers();
    return ended;
  }

 private:
  using Reader = std::unique_ptr<ItemReader<ProcessBatch>>;

  bool is_remote() const { return !options_.transformers.empty(); }

  TransformedReading plan_remote(const ItemMemory& memory) const {
    const auto row_bytes = static_cast<int64_t>(reading_.row_bytes.prepared);
    const int64_t batches = std::max<int64_t>(1, std::min(kMostTransformedRows, kSliceBytes / row_bytes) / reading_.batch_size);
    const int64_t slice_rows = batches * reading_.batch_size;
    const int64_t slices = static_cast<int64_t>(memory.work_bytes) / (slice_rows * row_bytes * workers_.readers);
    return {.fleet = fleet_of(run_, options_),
            .resolution = options_.transform.resolution,
            .slice_rows = slice_rows,
            .slices_ahead = std::clamp<int64_t>(slices, 2, kMostSlicesAhead),
            .ahead_bytes = static_cast<int64_t>(memory.work_bytes) / workers_.readers};
  }

  Result<Reader> make_reader() {
    if (!is_remote()) {
      return Reader(std::make_unique<ProcessReader>(run_, reading_));
    }
    return Reader(std::make_unique<TransformedReader>(run_, reading_, remote_, *encoder_.models().tokenizer, transformers_));
  }

  /// Who waited for whom.
  void tell_of_transformers() const {
    if (is_remote()) {
      log_info("{}", transformers_.text());
    }
  }

  ItemJob<ProcessBatch> make_job(BoundedQueue<ProcessPiece>& prepared) {
    using Writer = std::unique_ptr<ItemWriter<ProcessBatch>>;
    return {.make_reader = [this](int) -> Result<Reader> { return make_reader(); },
            .add_middle = [this, &prepared](Pipeline& pipeline, BoundedQueue<ProcessPiece>& read,
                                            BoundedQueue<ProcessPiece>& done) { add_middle(pipeline, read, prepared, done); },
            .open_writer = [this](const std::shared_ptr<ItemInWork>& item) -> Result<Writer> {
              const WorkItem& work = static_cast<JobItem&>(*item).work;
              if (scratch_ != nullptr) {
                DARKROOM_ASSIGN_OR_RETURN(auto writer, MdsLatentsWriter::open(run_, work, layout_, *scratch_));
                return Writer(std::move(writer));
              }
              DARKROOM_ASSIGN_OR_RETURN(auto writer, LatentsWriter::open(run_, work, layout_));
              return Writer(std::move(writer));
            }};
  }

  void add_middle(Pipeline& pipeline, BoundedQueue<ProcessPiece>& read, BoundedQueue<ProcessPiece>& prepared,
                  BoundedQueue<ProcessPiece>& done) {
    using Made = Result<std::unique_ptr<ProcessStage>>;
    remote_.fleet.stop = pipeline.stop_token();  // No reader has begun.
    if (!is_remote()) {
      pipeline.add_pool<ProcessPiece, ProcessPiece>(
          "transform", workers_.transformers,
          [this, stop = pipeline.stop_token()](int) -> Made {
            DARKROOM_ASSIGN_OR_RETURN(auto decoder, open_decoder(options_.decoder_program, kAnySize, stop));
            decoder = decoder_that_tells(told_, decoder_within(*decoding_, std::move(decoder), stop));
            return std::unique_ptr<ProcessStage>(std::make_unique<TransformStage>(encoder_, std::move(decoder), reading_.row_bytes));
          },
          read, prepared);
    }
    pipeline.add_pool<ProcessPiece, ProcessPiece>(
        "encode", workers_.encoders,
        [this](int) -> Made {
          return std::unique_ptr<ProcessStage>(std::make_unique<EncodeStage>(encoder_, options_.encoder_threads, reading_.row_bytes));
        },
        is_remote() ? read : prepared, done);
  }

  JobRun& run_;
  const ProcessOptions& options_;
  const RowEncoder& encoder_;
  const LatentsLayout& layout_;
  const ProcessReading reading_;
  const WorkerCounts workers_ = choose_workers(options_);
  std::optional<DecodingBudget> decoding_;
  ToldErrors told_{"process"};
  TransformedReading remote_;
  TransformerTally transformers_;
  std::unique_ptr<ScratchFiles> scratch_;  // Of the dialect mosaicml alone.
};

/// Of the dialect mosaicml: an item that no shard can hold is found before its rows are encoded. How many of them fail nobody knows yet: a
/// job that has begun, whose items stay as they are, goes on, and the writer tells.
Status check_mds_items(const JobPlan& plan, const RowEncoder& encoder) {
  int64_t most_rows = 0;
  for (auto item = plan.next_pending(0); item; item = plan.next_pending(item->number + 1)) {
    most_rows = std::max(most_rows, item->num_rows);
  }
  const auto row_bytes = static_cast<int64_t>(row_bytes_of(encoder).encoded);
  if (most_rows <= kMostMdsBytes / std::max<int64_t>(row_bytes, 1)) {
    return Status::ok();
  }
  if (plan.has_begun()) {
    log_warning("an item of {} rows fits into a shard of the dialect mosaicml only where {} of them fail: it holds 4 GiB at most",
                most_rows, most_rows - kMostMdsBytes / row_bytes);
    return Status::ok();
  }
  return Status::failed_precondition(
      "a shard of the dialect mosaicml holds 4 GiB at most, because its offsets have 32 bits; ask for fewer --rows-per-file (rows of an "
      "item, bytes of a row's tensors, rows that fit):",
      most_rows, row_bytes, kMostMdsBytes / row_bytes);
}

std::vector<std::string> file_names_of(const std::vector<JobInput>& inputs) {
  std::vector<std::string> names;
  for (const JobInput& input : inputs) {
    names.push_back(input.name);
  }
  return names;
}

/// What transformers that do not fit refuse is told before anything is written. `now`: the names of the dataset's files as they lie there;
/// empty: not known.
Status meet_transformers(const JobRun& run, const ProcessOptions& options, const std::vector<std::string>& now, std::stop_token stop) {
  if (options.transformers.empty() || !run.has_work()) {
    return {};
  }
  SliceFleetOptions fleet = fleet_of(run, options);
  fleet.stop = std::move(stop);
  const SliceReader nothing = [](std::span<const int64_t>, std::string) -> Result<std::shared_ptr<const SliceContent>> {
    return Status::corrupt_data("a transformer sent a slice that nobody asked for");
  };
  const Status met = SliceFleet::open(fleet, nothing).status();
  const std::vector<std::string> then = file_names_of(run.plan().inputs());
  const bool is_of_dataset = met.code() == StatusCode::kFailedPrecondition && met.message().find("image dataset") != std::string::npos;
  if (!is_of_dataset || now.empty() || then == now) {
    return met;
  }
  return met.with_context(fmt::format(
      "the job goes on with the {} files that it began with, and the image dataset has other ones now ({}; it was extended, or "
      "parts were made anew), which transformers that were started since serve; go on without --transformers, or with ones that "
      "were started before",
      then.size(), now.size()));
}

/// The part of a run that writes.
Status work(JobRun& run, const ProcessOptions& options, const RowEncoder& encoder, const KeptColumns& kept, std::stop_token stop,
            StageSummary& summary) {
  DARKROOM_ASSIGN_OR_RETURN(arrow::FieldVector kept_fields, kept.fields(run.plan()));
  const bool is_mds = options.dialect == LatentsDialect::kMosaicMl;
  if (is_mds) {  // Before anything is written.
    DARKROOM_RETURN_IF_ERROR(mds_columns(make_layout(encoder, options, "", kept_fields)).status());
    DARKROOM_RETURN_IF_ERROR(check_mds_items(run.plan(), encoder));
  }
  DARKROOM_RETURN_IF_ERROR(run.plan().prepare(stop));
  std::string empty_sha256;
  if (encoder.options().with_states) {
    DARKROOM_ASSIGN_OR_RETURN(empty_sha256, publish_empty_caption(encoder, options.encoder_threads, run.output()));
  }
  const LatentsLayout layout = make_layout(encoder, options, empty_sha256, std::move(kept_fields));
  if (run.has_work()) {
    DARKROOM_RETURN_IF_ERROR(ProcessParts(run, options, encoder, layout).execute(stop, summary));
  }
  DARKROOM_RETURN_IF_ERROR(run.plan().write_summary(stop));
  DARKROOM_RETURN_IF_ERROR(is_mds ? write_mds_index(run.plan(), layout, stop) : Status::ok());
  run.fill(summary);
  return Status::ok();
}

/// What a dry run tells: nothing is written.
Status look_ahead(const JobPlan& plan, const RowEncoder& encoder, const ProcessOptions& options, StageSummary& summary) {
  PendingWork& work = summary.pending_work;
  work = plan.pending_work();
  constexpr size_t kKeyAndSizes = 32;
  constexpr size_t kBytesOfIds = 8 * ClipTokenizer::kContextLength;
  work.encoded_row_bytes =
      static_cast<double>(row_bytes_of(encoder).encoded + kKeyAndSizes + (options.text == TextKind::kEmbeddings ? 0 : kBytesOfIds));
  // Those of a GPU share it: one alone, with its batches, was timed at all that it can do.
  work.num_encoders = options.place.device.is_cpu() ? choose_workers(options).encoders : 1;
  if (work.num_rows > 0) {
    DARKROOM_ASSIGN_OR_RETURN(const TriedEncoder tried, try_encoder(encoder, options.encoder_threads));
    work.encoder_rows_per_second_low = tried.slowest;
    work.encoder_rows_per_second_high = tried.fastest;
  }
  log_info("process: {} of {} items are to do; nothing was written into the output", summary.num_pending, summary.num_items);
  return Status::ok();
}

}  // namespace

int default_batch_size(int resolution, const torch::Device& device) {
  const int64_t pixels = int64_t{resolution} * resolution;
  const int64_t num_large = device.is_cpu() ? 4 : 40;
  const int64_t most = device.is_cpu() ? 64 : 120;
  return static_cast<int>(std::clamp<int64_t>(num_large * 512 * 512 / std::max<int64_t>(pixels, 1), 1, most));
}

namespace {

Status check_transformers(const ProcessOptions& options) {
  DARKROOM_RETURN_IF_ERROR(read_encoder_addresses(options.transformers, transformer_names()).status());
  if (options.num_transformers > 0) {
    return Status::invalid_argument("--num-transformers are workers of this process, and --transformers does without; leave one out:",
                                    options.num_transformers);
  }
  if (batch_size_of(options) > kMostTransformedRows) {
    return Status::invalid_argument("with --transformers --batch-size is at most 256, got:", batch_size_of(options));
  }
  const auto slice_bytes = static_cast<int64_t>(batch_size_of(options)) * static_cast<int64_t>(square_bytes(options.transform));
  if (slice_bytes > kLargestSlice / 2) {
    return Status::invalid_argument(
        "a batch is more than --transformers send at once; ask for a smaller --batch-size (bytes, most):", slice_bytes, kLargestSlice / 2);
  }
  const std::string squares = squares_name(options.transform.resolution);
  if (std::ranges::find(options.keep_columns, squares) != options.keep_columns.end()) {
    return Status::invalid_argument("--keep-columns names the column in which --transformers send pixels:", squares);
  }
  return {};
}

}  // namespace

Status ProcessOptions::validate() const {
  if (input.empty() || output.empty() || model.empty()) {
    return Status::invalid_argument("the image dataset, the output folder and --model must be named");
  }
  for (const auto& [flag, value] : {std::pair<const char*, int64_t>{"--batch-size", batch_size},
                                    {"--num-readers", num_readers},
                                    {"--num-transformers", num_transformers},
                                    {"--num-encoders", num_encoders},
                                    {"--memory", memory_bytes},
                                    {"--visualize", num_visualized}}) {
    if (value < 0) {
      return Status::invalid_argument(fmt::format("{} must not be negative, got:", flag), value);
    }
  }
  if (rows_per_file < 1 || encoder_threads < 1) {
    return Status::invalid_argument("--rows-per-file and --encoder-threads must be at least 1, got:", rows_per_file, encoder_threads);
  }
  if (num_visualized > 0 && visualize_path.empty()) {
    return Status::invalid_argument("--visualize needs a path of a PNG to write");
  }
  DARKROOM_RETURN_IF_ERROR(check_kept_names(keep_columns, dialect));
  if (!transformers.empty()) {
    DARKROOM_RETURN_IF_ERROR(check_transformers(*this));
  }
  DARKROOM_RETURN_IF_ERROR(check_dialect(*this));
  DARKROOM_RETURN_IF_ERROR(selection.validate());
  return transform.validate();
}

Status run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (options.selection.on_demand && options.orders == nullptr) {
    return Status::invalid_argument("somebody must order the items that are done on demand");
  }
  JobRequest request{.selection = options.selection};
  DARKROOM_ASSIGN_OR_RETURN(request.output, stores.resolve(options.output, Access::kWrite));
  std::vector<std::string> listed;
  if (options.selection.items.empty()) {  // What cannot be listed is told before the model is fetched.
    DARKROOM_ASSIGN_OR_RETURN(request.listed, list_image_job_inputs(stores, options.input));
    listed = file_names_of(request.listed);
  } else {
    request.list = [&] { return list_image_job_inputs(stores, options.input); };
    request.roots = input_roots(stores, {options.input});
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto models, fetch_frozen_models(stores, options, stop));
  DARKROOM_ASSIGN_OR_RETURN(const auto encoder, make_encoder(models, options));
  request.identity = make_identity(options, *models);
  KeptColumns kept(options.keep_columns);
  request.check_columns = [&](const arrow::Schema& schema, const std::string& path) {
    DARKROOM_RETURN_IF_ERROR(find_image_columns(schema, path, options.caption_column).status());
    return kept.look_at(schema, path);
  };
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<JobPlan> plan, JobPlan::make(std::move(request), stop));
  log_info("process: {} rows of {} input files, {} rows a part; {} rows are done, {} parts to go", plan->num_rows(), plan->inputs().size(),
           options.rows_per_file, plan->num_rows_before(), plan->num_pending());
  log_info("process: the encoders run on {} in {}, {}", options.place.device.str(), float_type_name(options.place.type),
           go_together(options) ? fmt::format("{} rows at a time", batch_size_of(options)) : "each row alone");
  if (options.place == NetworkPlace{.device = torch::kCPU, .type = torch::kFloat16}) {
    log_warning("process: few processors have instructions for float16, so that it is many times slower here than float32 or bfloat16");
  }
  const bool decodes = (plan->num_pending() > 0 && options.transformers.empty()) || options.num_visualized > 0;
  if (!options.dry_run && decodes) {
    DARKROOM_RETURN_IF_ERROR(check_decoder(options.decoder_program, kAnySize, stop));
  }
  ItemOrders* const orders = options.selection.on_demand ? options.orders : nullptr;
  JobRun run(std::move(plan), {.clock = &system_clock(), .owner = owner_of_this_process(), .orders = orders});
  run.fill(summary);
  if (options.dry_run) {
    return look_ahead(run.plan(), *encoder, options, summary);
  }
  const std::string output = run.output().uri();
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(meet_transformers(run, options, listed, stop), output));
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(work(run, options, *encoder, kept, stop, summary), output));
  if (options.num_visualized > 0 && !options.selection.on_demand) {  // Of the whole job.
    DARKROOM_ASSIGN_OR_RETURN(const Location picture, stores.resolve(options.visualize_path, Access::kWrite));
    DARKROOM_RETURN_IF_ERROR(with_resume_advice(write_process_picture(run, *encoder, options, picture), output));
  }
  log_stages("process", summary);
  log_info("{}", summary.to_text("process"));
  return Status::ok();
}

Result<StageSummary> run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop) {
  StageSummary summary;
  DARKROOM_RETURN_IF_ERROR(run_process(stores, options, std::move(stop), summary));
  return summary;
}

}  // namespace darkroom
