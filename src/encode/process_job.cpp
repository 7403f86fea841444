#include "darkroom/encode/process_job.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/files/publication.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/stream/pipeline.h"
#include "darkroom/tensor/safetensors.h"
#include "latents_writer.h"
#include "process_picture.h"
#include "process_source.h"

namespace darkroom {
namespace {

// Raised whenever the same inputs, models and flags would give other bytes.
constexpr int kProcessAlgorithmVersion = 2;
constexpr size_t kQueueBatches = 2;

struct WorkerCounts {
  int readers;
  int transformers;
  int encoders;
};

WorkerCounts choose_workers(const ProcessOptions& options) {
  const auto choose = [](int asked, int automatic) { return asked > 0 ? asked : std::max(1, automatic); };
  return {.readers = choose(options.num_readers, 1),
          .transformers = choose(options.num_transformers, num_processors() / 2),
          .encoders = choose(options.num_encoders, num_processors() / options.encoder_threads)};
}

std::string_view latents_kind_name(LatentsKind kind) { return kind == LatentsKind::kSample ? "sample" : "moments"; }

std::string_view text_kind_name(TextKind kind) {
  return kind == TextKind::kEmbeddings ? "embeddings" : kind == TextKind::kTokens ? "tokens" : "both";
}

int batch_size_of(const ProcessOptions& options) {
  return options.batch_size > 0 ? options.batch_size : default_batch_size(options.transform.resolution);
}

JobIdentity make_identity(const ProcessOptions& options, const FrozenModels& models) {
  nlohmann::json fields = {{"algorithm_version", kProcessAlgorithmVersion},
                           {"batch_size", batch_size_of(options)},
                           {"latents", latents_kind_name(options.latents)},
                           {"text", text_kind_name(options.text)},
                           {"dtype", options.dtype == torch::kFloat16 ? "float16" : "float32"},
                           {"compute_dtype", "float32"},
                           {"device", "cpu"},
                           {"seed", options.seed},
                           {"encoder_threads", options.encoder_threads},
                           {"tokenizer_dialect", tokenizer_dialect_name(options.tokenizer_dialect)},
                           {"tokenizer", models.tokenizer->fingerprint()},
                           {"vae", models.vae_fingerprint},
                           {"text_encoder", models.text_encoder_fingerprint}};
  fields.update(describe_transform(options.transform));
  return {.verb = "process", .fields = std::move(fields), .rows_per_file = options.rows_per_file};
}

Result<std::shared_ptr<const RowEncoder>> make_encoder(std::shared_ptr<const FrozenModels> models, const ProcessOptions& options) {
  RowEncoderOptions encoder;
  encoder.transform = options.transform;
  encoder.latents = options.latents;
  encoder.dtype = options.dtype;
  encoder.with_states = options.text != TextKind::kTokens;
  encoder.seed = options.seed;
  return RowEncoder::create(std::move(models), encoder);
}

size_t num_elements(const std::vector<int64_t>& shape) {
  size_t product = 1;
  for (const int64_t extent : shape) {
    product *= static_cast<size_t>(extent);
  }
  return product;
}

RowBytes row_bytes_of(const RowEncoder& encoder) {
  const auto side = static_cast<size_t>(encoder.options().transform.resolution);
  const size_t num_states = encoder.options().with_states ? num_elements(encoder.states_shape()) : 0;
  // The encoded rows exist twice for a moment: in the networks' output and in the columns.
  return {.prepared = 3 * side * side * sizeof(float), .encoded = 2 * sizeof(float) * (num_elements(encoder.latents_shape()) + num_states)};
}

size_t held_bytes(const ProcessBatch& batch, size_t bytes_a_row) {
  size_t size_bytes = 0;
  for (const PreparedRow& row : batch.prepared) {
    size_bytes += row.caption.size() + bytes_a_row;
  }
  return size_bytes;
}

/// The CPU pool: decodes, transforms and tokenises.
class Transform : public Stage<ProcessBatch, ProcessBatch> {
 public:
  Transform(const RowEncoder& encoder, RowBytes row_bytes) : encoder_(encoder), row_bytes_(row_bytes) {}

  Status process(ProcessBatch batch, Emitter<ProcessBatch>& out) override {
    int64_t num_bytes = 0;
    int64_t position = batch.first_position;
    for (ImageRow& row : batch.rows) {
      num_bytes += static_cast<int64_t>(row.image.size());
      RowResult<PreparedRow> prepared = encoder_.prepare(row);
      row.image = std::string();
      if (prepared.is_ok()) {
        batch.tally.num_unported_captions += prepared->unported == Unported::kNothing ? 0 : 1;
        batch.prepared.push_back(std::move(prepared).value());
        batch.positions.push_back(position);
      } else {
        batch.count_failed(prepared.error().name(), position);
      }
      ++position;
    }
    out.count(static_cast<int64_t>(batch.rows.size()), num_bytes);
    batch.rows.clear();
    batch.lease.resize(held_bytes(batch, row_bytes_.prepared + row_bytes_.encoded));
    return out.emit(std::move(batch));
  }

 private:
  const RowEncoder& encoder_;
  const RowBytes row_bytes_;
};

/// The encoder pool: runs the networks.
class Encode : public Stage<ProcessBatch, ProcessBatch> {
 public:
  Encode(const RowEncoder& encoder, RowBytes row_bytes) : encoder_(encoder), row_bytes_(row_bytes) {}

  Status process(ProcessBatch batch, Emitter<ProcessBatch>& out) override {
    if (!batch.prepared.empty()) {
      batch.encoded = encoder_.encode(batch.prepared);
    }
    for (PreparedRow& row : batch.prepared) {
      row.pixels_chw = std::vector<float>();
    }
    const std::vector<uint8_t>& is_finite = batch.encoded.is_finite;
    batch.tally.rows_out = std::count(is_finite.begin(), is_finite.end(), 1);
    for (size_t i = 0; i < is_finite.size(); ++i) {
      if (is_finite[i] == 0) {
        batch.count_failed(RowError{.code = RowErrorCode::kNanLatents}.name(), batch.positions[i]);
      }
    }
    out.count(static_cast<int64_t>(batch.prepared.size()), 0);
    batch.lease.resize(held_bytes(batch, row_bytes_.encoded));
    return out.emit(std::move(batch));
  }

 private:
  const RowEncoder& encoder_;
  const RowBytes row_bytes_;
};

/// The pipeline: read -> transform -> encode -> write.
class ProcessPipeline {
 public:
  ProcessPipeline(JobRun& run, const ProcessOptions& options, const RowEncoder& encoder, const LatentsLayout& layout,
                  const MemoryPlan& plan, std::stop_token stop)
      : run_(run),
        options_(options),
        encoder_(encoder),
        layout_(layout),
        row_bytes_(row_bytes_of(encoder)),
        row_budget_(plan.row_bytes),
        open_items_(static_cast<size_t>(plan.max_open_items)),
        items_(run, open_items_),
        raw_(kQueueBatches),
        prepared_(kQueueBatches),
        encoded_(kQueueBatches),
        pipeline_(std::move(stop)) {}

  Status execute() {
    using BatchStage = std::unique_ptr<Stage<ProcessBatch, ProcessBatch>>;
    const WorkerCounts workers = choose_workers(options_);
    pipeline_.add_source<ProcessBatch>(
        "read", workers.readers, [this](int, Emitter<ProcessBatch>& out) { return read(out); }, raw_);
    pipeline_.add_pool<ProcessBatch, ProcessBatch>(
        "transform", workers.transformers,
        [this](int) -> Result<BatchStage> { return BatchStage(std::make_unique<Transform>(encoder_, row_bytes_)); }, raw_, prepared_);
    pipeline_.add_pool<ProcessBatch, ProcessBatch>(
        "encode", workers.encoders,
        [this](int) -> Result<BatchStage> {
          at::set_num_threads(options_.encoder_threads);
          return BatchStage(std::make_unique<Encode>(encoder_, row_bytes_));
        },
        prepared_, encoded_);
    pipeline_.add_sink<ProcessBatch>(
        "write", [this](ProcessBatch batch, StageStats& stats) { return write(std::move(batch), stats); }, encoded_);
    return pipeline_.run();
  }

  std::vector<StageSnapshot> snapshots() const { return pipeline_.snapshots(); }
  size_t queue_depth() const { return raw_.size() + prepared_.size() + encoded_.size(); }

 private:
  Status read(Emitter<ProcessBatch>& out) {
    ProcessSource source(run_, items_, row_budget_, batch_size_of(options_), row_bytes_);
    const auto hand_on = [&](ProcessBatch batch) {
      int64_t num_bytes = 0;
      for (const ImageRow& row : batch.rows) {
        num_bytes += static_cast<int64_t>(row.image.size());
      }
      out.count(static_cast<int64_t>(batch.rows.size()), num_bytes);
      run_.count_bytes(num_bytes);
      return out.emit(std::move(batch));
    };
    return source.read_all(hand_on, out);
  }

  Status write(ProcessBatch batch, StageStats& stats) {
    stats.count(batch.tally.rows_out, 0);
    run_.count_rows(batch.tally.rows_in, batch.tally.rows_by_error);
    const int64_t number = batch.item->work.number;
    auto found = shards_.find(number);
    if (found == shards_.end()) {
      DARKROOM_ASSIGN_OR_RETURN(auto shard, LatentsWriter::open(run_, batch.item, layout_));
      found = shards_.emplace(number, std::move(shard)).first;
    }
    DARKROOM_RETURN_IF_ERROR(found->second->add(std::move(batch)));
    if (found->second->is_committed()) {
      shards_.erase(found);
    }
    return {};
  }

  JobRun& run_;
  const ProcessOptions& options_;
  const RowEncoder& encoder_;
  const LatentsLayout& layout_;
  const RowBytes row_bytes_;
  MemoryBudget row_budget_;  // Outlives every batch, so it stands before what holds batches.
  MemoryBudget open_items_;
  PendingItems items_;
  BoundedQueue<ProcessBatch> raw_;
  BoundedQueue<ProcessBatch> prepared_;
  BoundedQueue<ProcessBatch> encoded_;
  std::map<int64_t, std::unique_ptr<LatentsWriter>> shards_;  // Open items; used by the write stage only.
  Pipeline pipeline_;
};

/// The empty caption's states, computed as an encoder worker computes them.
torch::Tensor encode_empty_caption(const RowEncoder& encoder, int encoder_threads) {
  torch::Tensor states;
  std::jthread([&] {
    at::set_num_threads(encoder_threads);
    states = encoder.empty_caption_states();
  }).join();
  return states;
}

Status publish_empty_caption(FileSystem& files, const std::string& output, const torch::Tensor& states_tw) {
  DARKROOM_ASSIGN_OR_RETURN(const auto publication, Publication::begin(files, output, "_empty_caption.safetensors"));
  const TensorSpec spec{.name = "caption_embeddings", .dtype = states_tw.scalar_type(), .shape = states_tw.sizes().vec()};
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(publication->file(), {spec}, {}));
  DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, states_tw));
  DARKROOM_RETURN_IF_ERROR(writer->finish());
  return publication->publish().status();
}

Status execute(JobRun& run, const ProcessOptions& options, const RowEncoder& encoder, const LatentsLayout& layout, std::stop_token stop,
               StageSummary& summary) {
  ProcessPipeline pipeline(run, options, encoder, layout, plan_memory(options.memory_bytes), std::move(stop));
  Status status;
  {
    const ProgressReporter reporter("process", [&] {
      ProgressState state = run.progress();
      state.queue_depth = pipeline.queue_depth();
      return state;
    });
    status = pipeline.execute();
  }
  run.fill(summary);
  summary.stages = pipeline.snapshots();
  return status;
}

/// The part of a run that writes.
Status work(JobRun& run, const ProcessOptions& options, const RowEncoder& encoder, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(run.plan().prepare());
  std::string empty_sha256;
  if (encoder.options().with_states) {
    const torch::Tensor states_tw = encode_empty_caption(encoder, options.encoder_threads);
    empty_sha256 = sha256_hex({static_cast<const char*>(states_tw.const_data_ptr()), states_tw.nbytes()});
    DARKROOM_RETURN_IF_ERROR(publish_empty_caption(run.files(), run.output().path, states_tw));
  }
  const LatentsLayout layout = make_layout(encoder, options.text, empty_sha256);
  if (run.plan().num_pending() > 0) {
    DARKROOM_RETURN_IF_ERROR(execute(run, options, encoder, layout, stop, summary));
  }
  DARKROOM_RETURN_IF_ERROR(run.plan().write_summary(stop));
  run.fill(summary);
  return options.num_visualized == 0 ? Status()
                                     : write_process_picture(run, encoder, layout, options.num_visualized, options.visualize_path);
}

}  // namespace

int default_batch_size(int resolution) {
  const int64_t pixels = int64_t{resolution} * resolution;
  return static_cast<int>(std::clamp<int64_t>(4 * 512 * 512 / std::max<int64_t>(pixels, 1), 1, 64));
}

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
  DARKROOM_RETURN_IF_ERROR(selection.validate());
  return transform.validate();
}

Status run_process(FileSystem& files, const ProcessOptions& options, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  const std::unique_ptr<Store> store = make_posix_store(files, "file");
  JobRequest request{.output = {.store = store.get(), .path = options.output}, .input_store = store.get(), .selection = options.selection};
  DARKROOM_ASSIGN_OR_RETURN(request.listed, list_job_inputs(files, {options.input}));
  DARKROOM_ASSIGN_OR_RETURN(auto models, load_frozen_models(files, options.model, options.tokenizer_dialect));
  DARKROOM_ASSIGN_OR_RETURN(const auto encoder, make_encoder(models, options));
  request.identity = make_identity(options, *models);
  request.check_columns = [](const arrow::Schema& schema, const std::string& path) { return find_image_columns(schema, path).status(); };
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<JobPlan> plan, JobPlan::make(std::move(request), stop));
  log_info("process: {} rows of {} input files, {} rows a part; {} rows are done, {} parts to go", plan->num_rows(), plan->inputs().size(),
           options.rows_per_file, plan->num_rows_before(), plan->num_pending());
  JobRun run(std::move(plan), {.files = &files, .clock = &system_clock(), .owner = owner_of_this_process()});
  run.fill(summary);
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(work(run, options, *encoder, std::move(stop), summary), options.output));
  log_stages("process", summary);
  log_info("{}", summary.to_text("process"));
  return Status::ok();
}

Result<StageSummary> run_process(FileSystem& files, const ProcessOptions& options, std::stop_token stop) {
  StageSummary summary;
  DARKROOM_RETURN_IF_ERROR(run_process(files, options, std::move(stop), summary));
  return summary;
}

}  // namespace darkroom
