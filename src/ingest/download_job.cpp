#include "darkroom/ingest/download_job.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/image/decode.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/stream/pipeline.h"
#include "download_shard.h"
#include "download_source.h"

namespace darkroom {
namespace {

// Raised whenever the same inputs, flags and responses would give other bytes.
constexpr int kDownloadAlgorithmVersion = 2;
constexpr size_t kQueueRows = 64;

JobIdentity make_identity(const DownloadOptions& options) {
  JobIdentity identity{.verb = "download",
                       .fields = {{"algorithm_version", kDownloadAlgorithmVersion},
                                  {"url_column", options.url_column},
                                  {"caption_column", options.caption_column},
                                  {"min_size", options.limits.min_size},
                                  {"max_aspect", options.limits.max_aspect},
                                  {"max_pixels", options.limits.max_pixels},
                                  {"max_bytes", options.fetch.max_body_bytes},
                                  {"respect_noai", options.fetch.respect.noai},
                                  {"validate", options.validation == Validation::kFull ? "full" : "header"},
                                  {"keep_failed", options.keep_failed}},
                       .rows_per_file = options.rows_per_file};
  // Only where they are asked for: a job without them is the same as before there were any.
  if (options.fetch.respect.robots) {
    identity.fields["respect_robots"] = true;
  }
  if (options.fetch.respect.aipref) {
    identity.fields["respect_aipref"] = true;
  }
  return identity;
}

/// Looks at a fetched picture and fills in its header or its error.
class Inspect : public Stage<DownloadRow, DownloadRow> {
 public:
  explicit Inspect(const DownloadOptions& options) : options_(options) {}

  Status process(DownloadRow row, Emitter<DownloadRow>& out) override {
    out.count(1, static_cast<int64_t>(row.image.size()));
    if (!row.error) {
      inspect(row);
    }
    if (row.error) {
      row.image = std::string();
      row.lease.resize(row.caption.size());
    }
    return out.emit(std::move(row));
  }

 private:
  void inspect(DownloadRow& row) const {
    const auto bytes = std::as_bytes(std::span(row.image));
    const RowResult<ImageHeader> header = probe_image(bytes, options_.limits);
    if (!header.is_ok()) {
      row.error = header.error();
      return;
    }
    row.header = header.value();
    if (options_.validation == Validation::kFull) {
      const RowResult<Image> image = decode_image(bytes, options_.limits);
      if (!image.is_ok()) {
        row.error = image.error();
      }
    }
  }

  const DownloadOptions& options_;
};

/// Rows whose requests are under way, by request id. Thread safety: any thread.
class RowsUnderWay {
 public:
  uint64_t add(DownloadRow row) {
    std::lock_guard lock(mutex_);
    rows_.emplace(next_id_, std::move(row));
    return next_id_++;
  }
  DownloadRow take(uint64_t id) {
    std::lock_guard lock(mutex_);
    auto node = rows_.extract(id);
    DARKROOM_CHECK(!node.empty(), "a reply to no request:", id);
    return std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, DownloadRow> rows_;  // Guarded by mutex_, like next_id_.
  uint64_t next_id_ = 0;
};

/// The pipeline: read -> fetch -> inspect -> write.
class DownloadPipeline {
 public:
  DownloadPipeline(JobRun& run, const DownloadOptions& options, const MemoryPlan& plan, Fetcher& fetcher, std::stop_token stop)
      : run_(run),
        options_(options),
        fetcher_(fetcher),
        row_budget_(plan.row_bytes),
        open_items_(static_cast<size_t>(plan.max_open_items)),
        fetched_(kQueueRows),
        inspected_(kQueueRows),
        pipeline_(std::move(stop)) {}

  Status execute() {
    const int num_validators = options_.num_validators > 0 ? options_.num_validators : num_processors();
    pipeline_.add_source<DownloadRow>(
        "read", 1, [this](int, Emitter<DownloadRow>& out) { return read(out); }, fetched_);
    pipeline_.add_source<DownloadRow>(
        "fetch", 1, [this](int, Emitter<DownloadRow>& out) { return collect(out); }, fetched_);
    pipeline_.add_pool<DownloadRow, DownloadRow>(
        "inspect", num_validators,
        [this](int) -> Result<std::unique_ptr<Stage<DownloadRow, DownloadRow>>> {
          return std::unique_ptr<Stage<DownloadRow, DownloadRow>>(std::make_unique<Inspect>(options_));
        },
        fetched_, inspected_);
    pipeline_.add_sink<DownloadRow>(
        "write", [this](DownloadRow row, StageStats& stats) { return write(std::move(row), stats); }, inspected_);
    const std::stop_callback drop_transfers(pipeline_.stop_token(), [this] { fetcher_.cancel(); });
    return pipeline_.run();
  }

  std::vector<StageSnapshot> snapshots() const { return pipeline_.snapshots(); }
  size_t queue_depth() const { return fetched_.size() + inspected_.size() + static_cast<size_t>(fetcher_.stats().num_active); }

 private:
  Status read(Emitter<DownloadRow>& out) {
    DownloadSource source(run_, options_, row_budget_, open_items_);
    const auto hand_on = [&](DownloadRow row) -> Status {
      out.count(1, static_cast<int64_t>(row.url.size() + row.caption.size()));
      if (row.error) {
        return out.emit(std::move(row));
      }
      std::string url = row.url;
      const uint64_t id = under_way_.add(std::move(row));
      const bool submitted = out.waiting([&] { return fetcher_.submit({.id = id, .url = std::move(url)}); });
      return submitted ? Status() : failure_or(Status::cancelled("stopped while fetching"));
    };
    DARKROOM_RETURN_IF_ERROR(source.read_all(hand_on, out));
    fetcher_.close();
    return {};
  }

  Status collect(Emitter<DownloadRow>& out) {
    while (std::optional<FetchReply> reply = out.waiting([&] { return fetcher_.next(); })) {
      DownloadRow row = under_way_.take(reply->id);
      out.count(1, reply->num_bytes);
      run_.count_bytes(reply->num_bytes);
      if (reply->body.is_ok()) {
        row.image = std::move(reply->body).value();
        row.lease.resize(row.image.size() + row.caption.size());
      } else {
        row.error = reply->body.error();
      }
      DARKROOM_RETURN_IF_ERROR(out.emit(std::move(row)));
    }
    return failure_or({});
  }

  // A fetcher that has ended by itself must not look like a stop, nor like the end.
  Status failure_or(Status otherwise) const {
    Status failure = fetcher_.failure();
    return failure.is_ok() ? otherwise : failure;
  }

  Status write(DownloadRow row, StageStats& stats) {
    stats.count(1, static_cast<int64_t>(row.image.size()));
    const int64_t number = row.item->work.number;
    auto found = shards_.find(number);
    if (found == shards_.end()) {
      DARKROOM_ASSIGN_OR_RETURN(auto shard, DownloadShard::open(run_, row.item, options_.keep_failed));
      found = shards_.emplace(number, std::move(shard)).first;
    }
    DARKROOM_RETURN_IF_ERROR(found->second->add(std::move(row)));
    if (found->second->is_committed()) {
      shards_.erase(found);
    }
    return {};
  }

  JobRun& run_;
  const DownloadOptions& options_;
  Fetcher& fetcher_;
  MemoryBudget row_budget_;  // Outlives every row, so it stands before what holds rows.
  MemoryBudget open_items_;
  RowsUnderWay under_way_;
  BoundedQueue<DownloadRow> fetched_;
  BoundedQueue<DownloadRow> inspected_;
  std::map<int64_t, std::unique_ptr<DownloadShard>> shards_;  // Open items; used by the write stage only.
  Pipeline pipeline_;
};

Status execute(JobRun& run, const DownloadOptions& options, std::stop_token stop, StageSummary& summary) {
  const MemoryPlan plan = plan_memory(options.memory_bytes);
  FetchOptions fetch = options.fetch;
  fetch.max_bytes_in_flight = std::min<int64_t>(fetch.max_bytes_in_flight, static_cast<int64_t>(plan.total_bytes / 4 + 1));
  DARKROOM_ASSIGN_OR_RETURN(const auto fetcher, Fetcher::create(fetch));
  DownloadPipeline pipeline(run, options, plan, *fetcher, std::move(stop));
  Status status;
  {
    const ProgressReporter reporter("download", [&] {
      ProgressState state = run.progress();
      state.queue_depth = pipeline.queue_depth();
      return state;
    });
    status = pipeline.execute();
  }
  run.fill(summary);
  summary.retries = fetcher->stats().num_retries;
  summary.stages = pipeline.snapshots();
  return status;
}

/// The part of a run that writes.
Status work(JobRun& run, const DownloadOptions& options, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(run.plan().prepare());
  if (run.plan().num_pending() > 0) {
    DARKROOM_RETURN_IF_ERROR(execute(run, options, stop, summary));
  }
  DARKROOM_RETURN_IF_ERROR(run.plan().write_summary(stop));
  run.fill(summary);
  return Status::ok();
}

}  // namespace

Status DownloadOptions::validate() const {
  if (output.empty()) {
    return Status::invalid_argument("the output folder must be named");
  }
  if (metadata.empty()) {
    return Status::invalid_argument("--metadata must name at least one URL table");
  }
  if (rows_per_file < 1) {
    return Status::invalid_argument("--rows-per-file must be at least 1, got:", rows_per_file);
  }
  if (limits.min_size < 1 || limits.max_pixels < 1 || !(limits.max_aspect >= 0)) {
    return Status::invalid_argument("image limits must be positive (min size, max aspect, max pixels):", limits.min_size, limits.max_aspect,
                                    limits.max_pixels);
  }
  if (memory_bytes < 0) {
    return Status::invalid_argument("--memory must not be negative, got:", memory_bytes);
  }
  DARKROOM_RETURN_IF_ERROR(selection.validate());
  return fetch.validate();
}

Status run_download(FileSystem& files, const DownloadOptions& options, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  const std::unique_ptr<Store> store = make_posix_store(files, "file");
  JobRequest request{.output = {.store = store.get(), .path = options.output},
                     .identity = make_identity(options),
                     .input_store = store.get(),
                     .selection = options.selection};
  DARKROOM_ASSIGN_OR_RETURN(request.listed, list_job_inputs(files, options.metadata));
  request.check_columns = [&options](const arrow::Schema& schema, const std::string& path) {
    return find_url_columns(schema, path, options.url_column, options.caption_column).status();
  };
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<JobPlan> plan, JobPlan::make(std::move(request), stop));
  log_info("download: {} rows of {} input files, {} rows a part; {} rows are done, {} parts to go", plan->num_rows(), plan->inputs().size(),
           options.rows_per_file, plan->num_rows_before(), plan->num_pending());
  JobRun run(std::move(plan), {.files = &files, .clock = &system_clock(), .owner = owner_of_this_process()});
  run.fill(summary);
  if (options.dry_run) {
    return Status::ok();
  }
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(work(run, options, std::move(stop), summary), options.output));
  log_stages("download", summary);
  log_info("{}", summary.to_text("download"));
  return Status::ok();
}

Result<StageSummary> run_download(FileSystem& files, const DownloadOptions& options, std::stop_token stop) {
  StageSummary summary;
  DARKROOM_RETURN_IF_ERROR(run_download(files, options, std::move(stop), summary));
  return summary;
}

}  // namespace darkroom
