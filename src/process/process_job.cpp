#include "darkroom/process/process_job.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/ingest/decoding_budget.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/ingest/run_items.h"
#include "darkroom/ingest/told_errors.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/tables/table_reader.h"
#include "latents_writer.h"
#include "mds_latents_writer.h"
#include "process_reader.h"
#include "process_stages.h"
#include "transformed_reader.h"

namespace darkroom {
namespace {

// Raised whenever the same inputs, models and flags would give other bytes.
constexpr int kProcessAlgorithmVersion = 5;
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

WorkerCounts choose_workers(const ProcessJobOptions& options, const EncoderFacts& facts) {
  const auto choose = [](int asked, int automatic) { return asked > 0 ? asked : std::max(1, automatic); };
  return {.readers = choose(options.num_readers, options.transformers.empty() ? 1 : kRemoteReaders),
          .transformers = choose(options.num_transformers, num_processors() / 2),
          .encoders = choose(options.num_encoders, facts.is_on_cpu() ? num_processors() / options.encoder_threads : kEncodersOfAGpu),
          .writers = std::clamp(num_processors() / 8, 2, 8)};
}

std::string_view latents_kind_name(LatentsKind kind) { return kind == LatentsKind::kSample ? "sample" : "moments"; }

std::string_view text_kind_name(TextKind kind) {
  return kind == TextKind::kEmbeddings ? "embeddings" : kind == TextKind::kTokens ? "tokens" : "both";
}

/// How the parts tell Hugging Face's datasets of their columns: once in the footer alone, where it does not look (1); then a kept column of
/// halves as a type that it does not know (2). Tables that cannot be read are told of when the job is planned.
Result<int> version_of_features(StoreSet& stores, const ProcessJobOptions& options, std::vector<JobInput> inputs) {
  if (options.keep_columns.empty()) {
    return 2;
  }
  if (inputs.empty()) {  // Of single items, which do without a list where they can.
    DARKROOM_ASSIGN_OR_RETURN(inputs, list_image_job_inputs(stores, options.input));
  }
  const auto is_half = [](const auto& field) { return field->type()->id() == arrow::Type::HALF_FLOAT; };
  for (const JobInput& input : inputs) {
    const auto table = open_table(place_of(nullptr, input));
    const auto fields =
        table.is_ok() ? kept_fields(*(*table)->schema(), input.path, options.keep_columns) : Result<arrow::FieldVector>(table.status());
    if (fields.is_ok()) {
      return std::ranges::any_of(*fields, is_half) ? 3 : 2;
    }
  }
  return 2;
}

JobIdentity make_identity(const ProcessJobOptions& options, const ProcessEncoder& encoder, int features) {
  const EncoderFacts& facts = encoder.facts();
  nlohmann::json fields = {{"algorithm_version", kProcessAlgorithmVersion},
                           {"batch_size", options.batch_size},
                           {"latents", latents_kind_name(options.latents)},
                           {"text", text_kind_name(options.text)},
                           {"dtype", facts.element == TensorElement::kFloat16 ? "float16" : "float32"},
                           {"compute_dtype", facts.compute_type},
                           {"device", facts.device_class},
                           {"seed", options.seed},
                           {"encoder_threads", options.encoder_threads},
                           {"tokenizer_dialect", tokenizer_dialect_name(encoder.tokenizer().dialect())},
                           {"tokenizer", encoder.tokenizer().fingerprint()},
                           {"vae", facts.vae_fingerprint},
                           {"text_encoder", facts.text_encoder_fingerprint}};
  fields.update(describe_transform(options.transform));
  if (options.dialect == LatentsDialect::kHuggingFace) {
    fields["features"] = features;
  }
  if (facts.takes_rows_together) {
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

bool has_states(const ProcessJobOptions& options) { return options.text != TextKind::kTokens; }

RowBytes row_bytes_of(const ProcessJobOptions& options, const EncoderFacts& facts) {
  const size_t num_values = num_elements(facts.latents_shape) + (has_states(options) ? num_elements(facts.states_shape) : 0);
  return {.prepared = square_bytes(options.transform), .encoded = num_values * static_cast<size_t>(element_bytes(facts.element))};
}

RowTransform transform_of(const ProcessJobOptions& options) { return {.transform = options.transform, .seed = options.seed}; }

/// The transformers of a job, by what they must have alike.
SliceFleetOptions fleet_of(const JobRun& run, const ProcessJobOptions& options) {
  return {.encoders = options.transformers,
          .token = options.transformer_token,
          .facts = transform_facts(run.plan().inputs(), transform_of(options), options.caption_column, options.keep_columns),
          .max_slice_bytes = kLargestSlice,
          .timeout = options.transformer_timeout,
          .patience = options.transformer_patience,
          .names = transformer_names()};
}

/// What the workers of one run share: read -> transform -> encode -> write.
class ProcessParts {
 public:
  ProcessParts(JobRun& run, const ProcessJobOptions& options, const ProcessEncoder& encoder, const LatentsLayout& layout)
      : run_(run),
        options_(options),
        encoder_(encoder),
        layout_(layout),
        reading_{.batch_size = options.batch_size,
                 .row_bytes = row_bytes_of(options, encoder.facts()),
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
    const size_t row_bytes = memory.intake_bytes + memory.body_bytes;
    const ReadAheadShare ahead = is_remote() ? ReadAheadShare() : plan_read_ahead(run_.plan(), row_bytes, workers_.readers);
    BodyMemory intake(row_bytes - ahead.total_bytes);
    reading_.read_ahead_bytes = ahead.reader_bytes;
    reading_.memory_bytes = static_cast<int64_t>(intake.limit_bytes()) / workers_.readers;
    reading_.num_readers = workers_.readers;
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
    summary.first_errors = told_.told();
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
      return Reader(std::make_unique<ProcessReader>(run_, reading_, has_told_of_pages_));
    }
    return Reader(std::make_unique<TransformedReader>(run_, reading_, remote_, encoder_.tokenizer(), transformers_));
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
            },
            .num_rows = [](const ProcessBatch& batch) { return batch.tally.rows_in; }};
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
            return std::unique_ptr<ProcessStage>(
                std::make_unique<TransformStage>(transform_of(options_), encoder_.tokenizer(), std::move(decoder), reading_.row_bytes));
          },
          read, prepared);
    }
    pipeline.add_pool<ProcessPiece, ProcessPiece>(
        "encode", workers_.encoders,
        [this](int) -> Made { return std::unique_ptr<ProcessStage>(std::make_unique<EncodeStage>(encoder_, reading_.row_bytes)); },
        is_remote() ? read : prepared, done);
  }

  JobRun& run_;
  const ProcessJobOptions& options_;
  const ProcessEncoder& encoder_;
  const LatentsLayout& layout_;
  ProcessReading reading_;  // Whole before there is a reader.
  std::atomic<bool> has_told_of_pages_ = false;
  const WorkerCounts workers_ = choose_workers(options_, encoder_.facts());
  std::optional<DecodingBudget> decoding_;
  ToldErrors told_{"process"};
  TransformedReading remote_;
  TransformerTally transformers_;
  std::unique_ptr<ScratchFiles> scratch_;  // Of the dialect mosaicml alone.
};

/// Of the dialect mosaicml: an item that no shard can hold is found before its rows are encoded. How many of them fail nobody knows yet: a
/// job that has begun, whose items stay as they are, goes on, and the writer tells.
Status check_mds_items(const JobPlan& plan, int64_t row_bytes) {
  int64_t most_rows = 0;
  for (auto item = plan.next_pending(0); item; item = plan.next_pending(item->number + 1)) {
    most_rows = std::max(most_rows, item->num_rows);
  }
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
Status meet_transformers(const JobRun& run, const ProcessJobOptions& options, const std::vector<std::string>& now, std::stop_token stop) {
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

Status try_to_work(JobRun& run, const ProcessJobOptions& options, const ProcessEncoder& encoder, const KeptColumns& kept,
                   const std::stop_token& stop, StageSummary& summary) {
  DARKROOM_ASSIGN_OR_RETURN(arrow::FieldVector kept_fields, kept.fields(run.plan()));
  const bool is_mds = options.dialect == LatentsDialect::kMosaicMl;
  if (is_mds) {  // Before anything is written.
    DARKROOM_RETURN_IF_ERROR(mds_columns(make_layout(encoder, options, "", kept_fields)).status());
    DARKROOM_RETURN_IF_ERROR(check_mds_items(run.plan(), static_cast<int64_t>(row_bytes_of(options, encoder.facts()).encoded)));
  }
  DARKROOM_RETURN_IF_ERROR(run.plan().prepare(stop));
  std::string empty_sha256;
  if (has_states(options)) {
    DARKROOM_ASSIGN_OR_RETURN(empty_sha256, encoder.publish_empty_caption(run.output()));
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

/// The part of a run that writes.
Status work(JobRun& run, const ProcessJobOptions& options, const ProcessEncoder& encoder, const KeptColumns& kept,
            const std::stop_token& stop, StageSummary& summary) {
  return run.ended(try_to_work(run, options, encoder, kept, stop, summary));
}

void tell_of_encoders(const EncoderFacts& facts, int batch_size) {
  log_info("process: the encoders run on {} in {}, {}", facts.device, facts.compute_type,
           facts.takes_rows_together ? fmt::format("{} rows at a time", batch_size) : "each row alone");
  if (facts.is_on_cpu() && facts.compute_type == "float16") {
    log_warning("process: few processors have instructions for float16, so that it is many times slower here than float32 or bfloat16");
  }
}

/// What a dry run tells: nothing is written.
Status look_ahead(const JobPlan& plan, const ProcessEncoder& encoder, const ProcessJobOptions& options, StageSummary& summary) {
  PendingWork& work = summary.pending_work;
  work = plan.pending_work();
  constexpr size_t kKeyAndSizes = 32;
  constexpr size_t kBytesOfIds = 8 * ClipTokenizer::kContextLength;
  work.encoded_row_bytes = static_cast<double>(row_bytes_of(options, encoder.facts()).encoded + kKeyAndSizes +
                                               (options.text == TextKind::kEmbeddings ? 0 : kBytesOfIds));
  work.encodes_on_gpu = !encoder.facts().is_on_cpu();
  // Those of a GPU share it: one alone, with its batches, was timed at all that it can do.
  work.num_encoders = work.encodes_on_gpu ? 1 : choose_workers(options, encoder.facts()).encoders;
  if (work.num_rows > 0) {
    DARKROOM_ASSIGN_OR_RETURN(const TriedEncoder tried, encoder.try_out());
    work.encoder_rows_per_second_low = tried.slowest;
    work.encoder_rows_per_second_high = tried.fastest;
  }
  log_info("process: {} of {} items are to do; nothing was written into the output", summary.num_pending, summary.num_items);
  return Status::ok();
}

/// Where --visualize shall paint, looked at before the work that may take days. Errors: kFailedPrecondition.
Result<std::optional<Location>> find_picture_place(StoreSet& stores, const ProcessJobOptions& options) {
  if (options.num_visualized == 0 || options.selection.on_demand) {
    return std::optional<Location>();
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location picture, stores.resolve(options.visualize_path, Access::kWrite));
  const auto is_folder = [&](const std::string& path) {
    const Result<FileInfo> found = picture.store->stat(path);
    return found.is_ok() ? std::optional<bool>(found->is_folder) : std::nullopt;
  };
  if (is_folder(picture.path) == true) {
    return Status::failed_precondition("--visualize names a folder; name a PNG in it:", picture.uri());
  }
  if (is_folder(picture.parent().path) == false) {
    return Status::failed_precondition("--visualize names a picture in what is no folder:", picture.parent().uri());
  }
  return std::optional<Location>(picture);
}

Status check_transformers(const ProcessJobOptions& options) {
  DARKROOM_RETURN_IF_ERROR(read_encoder_addresses(options.transformers, transformer_names()).status());
  if (options.num_transformers > 0) {
    return Status::invalid_argument("--num-transformers are workers of this process, and --transformers does without; leave one out:",
                                    options.num_transformers);
  }
  if (options.batch_size > kMostTransformedRows) {
    return Status::invalid_argument("with --transformers --batch-size is at most 256, got:", options.batch_size);
  }
  const auto slice_bytes = static_cast<int64_t>(options.batch_size) * static_cast<int64_t>(square_bytes(options.transform));
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

Status ProcessJobOptions::validate() const {
  if (input.empty() || output.empty()) {
    return Status::invalid_argument("the image dataset and the output folder must be named");
  }
  for (const auto& [flag, value] : {std::pair<const char*, int64_t>{"--num-readers", num_readers},
                                    {"--num-transformers", num_transformers},
                                    {"--num-encoders", num_encoders},
                                    {"--memory", memory_bytes},
                                    {"--visualize", num_visualized}}) {
    if (value < 0) {
      return Status::invalid_argument(fmt::format("{} must not be negative, got:", flag), value);
    }
  }
  if (batch_size < 1) {
    return Status::invalid_argument("--batch-size must be at least 1, got:", batch_size);
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

Status run_process_job(StoreSet& stores, const ProcessJobOptions& options, const OpenProcessEncoder& open, std::stop_token stop,
                       StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (options.selection.on_demand && options.orders == nullptr) {
    return Status::invalid_argument("somebody must order the items that are done on demand");
  }
  JobRequest request{.selection = options.selection};
  DARKROOM_ASSIGN_OR_RETURN(request.output, stores.resolve(options.output, Access::kWrite));
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<Location> picture, find_picture_place(stores, options));
  std::vector<std::string> listed;
  if (options.selection.items.empty()) {  // What cannot be listed is told before models are fetched.
    DARKROOM_ASSIGN_OR_RETURN(request.listed, list_image_job_inputs(stores, options.input));
    listed = file_names_of(request.listed);
  } else {
    request.list = [&] { return list_image_job_inputs(stores, options.input); };
    request.roots = input_roots(stores, {options.input});
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<const ProcessEncoder> encoder, open());
  DARKROOM_RETURN_IF_ERROR(check_ids(options.text, encoder->tokenizer().vocabulary_size()));
  int features = 0;
  if (options.dialect == LatentsDialect::kHuggingFace) {
    DARKROOM_ASSIGN_OR_RETURN(features, version_of_features(stores, options, request.listed));
  }
  request.identity = make_identity(options, *encoder, features);
  KeptColumns kept(options.keep_columns);
  request.check_columns = [&](const arrow::Schema& schema, const std::string& path) {
    DARKROOM_RETURN_IF_ERROR(find_image_columns(schema, path, options.caption_column).status());
    if (!options.transformers.empty()) {
      DARKROOM_ASSIGN_OR_RETURN(const arrow::FieldVector fields, kept_fields(schema, path, options.keep_columns));
      DARKROOM_RETURN_IF_ERROR(check_sendable(fields, path));
    }
    return kept.look_at(schema, path);
  };
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<JobPlan> plan, JobPlan::make(std::move(request), stop));
  log_info("process: {} rows of {} input files, {} rows a part; {} rows are done, {} parts to go", plan->num_rows(), plan->inputs().size(),
           options.rows_per_file, plan->num_rows_before(), plan->num_pending());
  tell_of_encoders(encoder->facts(), options.batch_size);
  const bool decodes = (plan->num_pending() > 0 && options.transformers.empty()) || options.num_visualized > 0;
  if (!options.dry_run && decodes) {
    DARKROOM_RETURN_IF_ERROR(check_decoder(options.decoder_program, kAnySize, stop));
  }
  ItemOrders* const orders = options.selection.on_demand ? options.orders : nullptr;
  JobRun run(std::move(plan), {.clock = &system_clock(), .owner = owner_of_this_process(), .orders = orders, .stores = &stores});
  run.fill(summary);
  if (options.dry_run) {
    return look_ahead(run.plan(), *encoder, options, summary);
  }
  const std::string output = run.output().uri();
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(meet_transformers(run, options, listed, stop), output));
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(work(run, options, *encoder, kept, stop, summary), output));
  if (picture) {  // Of the whole job.
    const Status painted = encoder->paint_samples(run, *picture).with_context("the dataset is complete; its picture was not written");
    DARKROOM_RETURN_IF_ERROR(with_resume_advice(painted, output));
  }
  log_stages("process", summary);
  log_info("{}", summary.to_text("process"));
  return Status::ok();
}

}  // namespace darkroom
