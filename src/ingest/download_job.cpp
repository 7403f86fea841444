#include "darkroom/ingest/download_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base_rows.h"
#include "darkroom/core/log.h"
#include "darkroom/core/shown_uri.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/scratch.h"
#include "darkroom/ingest/body_pool.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/ingest/run_items.h"
#include "darkroom/ingest/value_copier.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/where.h"
#include "download_fetch.h"
#include "download_reader.h"
#include "download_rules.h"
#include "download_writer.h"
#include "listed_sizes.h"
#include "repeated_contents.h"
#include "repeated_urls.h"
#include "summary_file.h"
#include "webdataset_writer.h"

namespace darkroom {
namespace {

// Raised whenever the same inputs, flags and responses would give other bytes.
constexpr int kDownloadAlgorithmVersion = 5;
// Of an item that is being written, without what its store holds: pages of pictures, and a few rows of the other columns.
constexpr size_t kWriterBytes = size_t{6} << 20;
// Of an item whose failed rows are redone besides: what is read ahead of each column of its base.
constexpr size_t kBaseBytes = size_t{12} << 20;
constexpr int kNumWriters = 2;
// Items whose last rows are slow stay open: many, where items are small. Rows that are fetched bound them first (wait_for_demand).
constexpr size_t kMaxOpenItems = 64;
constexpr int64_t kDefaultScratchBytes = 20'000'000'000;
constexpr int64_t kMaxDenyListBytes = int64_t{1} << 30;
constexpr size_t kTopHosts = 20;
constexpr int64_t kRowsThatTellSpeed = 100;
constexpr int64_t kTracedRowInterval = 100;  // Of ten thousand rows of an item a hundred have spans.
// A page of Parquet holds a picture whole.
constexpr int64_t kMaxBodyBytes = 2'000'000'000;

JobIdentity make_identity(const DownloadOptions& options, const DownloadRules& rules) {
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
  if (rules.where) {
    identity.fields["where"] = rules.where->canonical();
  }
  if (options.dedup.url) {
    identity.fields["dedup_url"] = true;
  }
  if (options.dedup.content) {
    identity.fields["dedup_content"] = true;
  }
  if (options.dialect == ImagesDialect::kImg2dataset) {
    identity.fields["output_dialect"] = "img2dataset";
    identity.container = PartContainer::kTar;
  }
  if (rules.denied) {
    identity.fields["deny_list"] = rules.denied->fingerprint();
  }
  return identity;
}

Result<std::optional<WhereExpression>> parse_where(const std::string& text) {
  if (text.empty()) {
    return std::optional<WhereExpression>();
  }
  Result<WhereExpression> where = WhereExpression::parse(text);
  return where.is_ok() ? Result<std::optional<WhereExpression>>(*std::move(where)) : where.status().with_context("reading --where");
}

Result<DownloadRules> read_rules(StoreSet& stores, const DownloadOptions& options) {
  DownloadRules rules;
  DARKROOM_ASSIGN_OR_RETURN(rules.where, parse_where(options.where));
  if (!options.deny_list.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(options.deny_list, Access::kRead));
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, place.store->read_small(place.path, kMaxDenyListBytes));
    DARKROOM_ASSIGN_OR_RETURN(rules.denied, DenyList::parse(text, place.uri()));
  }
  return rules;
}

/// Below zero: as many bytes as kDefaultScratchBytes, and no more than half of what the disk has free.
Result<std::unique_ptr<ScratchFiles>> open_scratch_in(const std::string& folder, int64_t num_bytes) {
  if (num_bytes < 0) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_free, free_bytes_at(folder));
    num_bytes = std::min(kDefaultScratchBytes, num_free / 2);
  }
  return ScratchFiles::open(folder, std::max<int64_t>(num_bytes, 1));
}

/// Where bodies may wait on a disk; null: nowhere. A folder that was named has to work, another one is done without.
Result<std::unique_ptr<ScratchFiles>> open_scratch(const DownloadOptions& options, const Location& output) {
  if (options.scratch_bytes == 0) {
    return std::unique_ptr<ScratchFiles>();
  }
  const bool is_named = !options.scratch_folder.empty();
  const std::string folder = is_named ? options.scratch_folder : output.store->local_path(output.path).value_or("/tmp");
  if (is_named) {
    DARKROOM_RETURN_IF_ERROR(local_files().create_folders(folder).with_context("making the folder of --scratch"));
  }
  Result<std::unique_ptr<ScratchFiles>> scratch = open_scratch_in(folder, options.scratch_bytes);
  if (!scratch.is_ok() && !is_named) {
    log_warning("pictures that wait for slower ones stay in memory, so fewer are fetched at a time: {}", scratch.status().message());
    return std::unique_ptr<ScratchFiles>();
  }
  return scratch.is_ok() ? std::move(scratch) : scratch.status().with_context("opening the folder of --scratch");
}

/// Nulls in place of a row that cannot be read look like a row without a URL.
void tell_malformed(const MalformedRows& rows) {
  if (rows.count > 0) {
    log_warning(
        "download: {} rows of the tables are malformed (cut, another number of fields than the first row's, or no JSON object); they count "
        "as bad_url; the first is of {}",
        rows.count, shown_uri(rows.first_table));
  }
}

/// Fetches what there is to do.
Status execute(JobRun& run, const DownloadOptions& options, const DownloadRules& rules, std::stop_token stop, StageSummary& summary) {
  const bool has_bases = !options.retry_failed.is_empty() || rules.only_duplicates;
  const size_t base_bytes = has_bases ? kBaseBytes + 2 * static_cast<size_t>(kBaseReadAheadBytes) : 0;
  const ItemMemory plan = plan_memory(options.memory_bytes, kWriterBytes + base_bytes + upload_bytes(run.output()));
  const ReadAheadShare ahead = plan_read_ahead(run.plan(), plan.intake_bytes, 1);
  BodyMemory intake(plan.intake_bytes - ahead.total_bytes);
  BodyMemory bodies(plan.body_bytes);
  DARKROOM_ASSIGN_OR_RETURN(auto scratch, open_scratch(options, run.output()));
  BodyPool pool(bodies, std::move(scratch));
  DARKROOM_ASSIGN_OR_RETURN(const auto fetch, DownloadFetch::create(run, options, rules, pool, plan.work_bytes));
  const ReadOptions read{.batch_bytes = std::clamp<int64_t>(static_cast<int64_t>(plan.intake_bytes / 16), 64 << 10, 4 << 20),
                         .read_ahead_bytes = ahead.reader_bytes};
  MalformedRows malformed;  // Of the only reader.
  ItemJob<DownloadRow> job{
      .make_reader = [&](int) -> Result<std::unique_ptr<ItemReader<DownloadRow>>> {
        return std::unique_ptr<ItemReader<DownloadRow>>(std::make_unique<DownloadReader>(run, options, rules, read, malformed));
      },
      .add_middle = [&](Pipeline& pipeline, auto& in, auto& done) { fetch->add_stages(pipeline, in, done); },
      .open_writer =
          [&](const std::shared_ptr<ItemInWork>& item) {
            auto work = std::static_pointer_cast<DownloadItem>(item);
            return options.dialect == ImagesDialect::kImg2dataset ? WebdatasetWriter::open(run, std::move(work))
                                                                  : DownloadWriter::open(run, std::move(work), options.keep_failed);
          },
      .spillable = [](DownloadRow& row) { return row.error ? nullptr : &row.image; },
      .wait_for_demand = [&] { return fetch->wait_for_demand(options.rows_per_file); }};
  const ItemPipelineOptions pipeline{.num_readers = 1,
                                     .num_writers = kNumWriters,
                                     .max_open_items = kMaxOpenItems,
                                     .max_started_items = plan.max_started_items,
                                     .trace = options.trace,
                                     .traced_piece_interval = kTracedRowInterval};
  const Status status =
      run_items<DownloadRow>("download", run, std::move(job), intake, &pool, pipeline, options.metrics, std::move(stop), summary);
  tell_malformed(malformed);
  summary.retries = fetch->stats().num_retries;
  summary.hosts = fetch->hosts().top(kTopHosts);
  summary.first_errors = fetch->first_errors();
  log_detail("download: {} pictures waited on disk; bodies held at most {:.1f} MB", pool.num_spilled(),
             static_cast<double>(bodies.peak_bytes()) * 1e-6);
  return status;
}

Status try_to_work(JobRun& run, const DownloadOptions& options, DownloadRules rules, const std::stop_token& stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(run.plan().prepare(stop));
  if (run.has_work()) {
    if (options.dedup.url) {
      DARKROOM_ASSIGN_OR_RETURN(rules.repeated_urls, find_repeated_urls(run.plan(), options, rules, stop));
    }
    DARKROOM_RETURN_IF_ERROR(execute(run, options, rules, stop, summary));
  }
  DARKROOM_RETURN_IF_ERROR(run.plan().write_summary(stop));
  run.fill(summary);
  const bool is_usual = options.retry_failed.is_empty() && !rules.only_duplicates && !options.selection.on_demand;
  if (!is_usual || summary.rows_this_run < kRowsThatTellSpeed) {
    return Status::ok();
  }
  const RunSpeed speed{.num_rows = summary.rows_this_run, .seconds = summary.seconds};
  if (const Status told = write_speed_file(run.output(), run.plan().job_hash(), speed); !told.is_ok()) {
    log_warning("download: how fast it was could not be kept for --dry-run: {}", told.message());  // All that was asked for is done.
  }
  return Status::ok();
}

/// The part of a run that writes.
Status work(JobRun& run, const DownloadOptions& options, DownloadRules rules, const std::stop_token& stop, StageSummary& summary) {
  return run.ended(try_to_work(run, options, std::move(rules), stop, summary));
}

Status check_text_column(const arrow::Schema& schema, const std::string& path, const std::string& name) {
  const arrow::DataType& type = *schema.GetFieldByName(name)->type();
  const bool is_dictionary = type.id() == arrow::Type::DICTIONARY;
  if (is_bytes_type(is_dictionary ? *static_cast<const arrow::DictionaryType&>(type).value_type() : type)) {
    return Status::ok();
  }
  return Status::failed_precondition("a column of URLs or captions holds no text (table, column, type):", path, name, type.ToString());
}

/// Whether rows of such a table can be read and written.
Status check_types(const arrow::Schema& schema, const std::string& path, const UrlColumns& columns) {
  for (const std::string& name : {columns.url, columns.caption}) {
    DARKROOM_RETURN_IF_ERROR(check_text_column(schema, path, name));
  }
  for (const std::string& name : columns.metadata) {
    const auto field = schema.GetFieldByName(name);
    if (field == nullptr) {
      return Status::failed_precondition("a table has two columns of one name (table, column):", path, name);
    }
    DARKROOM_RETURN_IF_ERROR(ValueCopier::create(name, field->type()).status().with_context("table " + path));
  }
  return Status::ok();
}

CheckColumns check_columns(const DownloadOptions& options, const WhereExpression* where) {
  return [&options, where](const arrow::Schema& schema, const std::string& path) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const UrlColumns columns, find_url_columns(schema, path, options.url_column, options.caption_column));
    DARKROOM_RETURN_IF_ERROR(check_types(schema, path, columns));
    DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, table_format(path));  // Refuses what holds pictures already.
    if (where == nullptr) {
      return Status::ok();
    }
    return where->bind(schema, format, path).status().with_context("reading --where");
  };
}

RunTools tools_of_run(StoreSet& stores, ItemOrders* orders = nullptr) {
  return {.clock = &system_clock(),
          .owner = owner_of_this_process(),
          .make_item = [](const WorkItem& item) { return std::make_shared<DownloadItem>(item); },
          .orders = orders,
          .stores = &stores};
}

/// Makes the next generation of parts with rows that repeat a picture. What was fetched before stays what the summary tells.
Status mark_duplicates(StoreSet& stores, JobRequest request, const DownloadOptions& options, DownloadRules rules,
                       const std::stop_token& stop, StageSummary& summary) {
  request.selection = {};
  request.retry = {};
  rules.only_duplicates = true;
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<JobPlan> plan, JobPlan::make(std::move(request), stop));
  log_info("download: {} rows of {} parts repeat a picture and become duplicates", plan->num_rows(), plan->num_pending());
  JobRun run(std::move(plan), tools_of_run(stores));
  StageSummary marked;
  const Status status = work(run, options, std::move(rules), stop, marked);
  summary.rows_out = marked.rows_out;
  summary.rows_by_error = marked.rows_by_error;
  summary.seconds += marked.seconds;
  return status;
}

/// Rows whose picture an earlier row of the list has become duplicates, once every item has its part: only then the first one is known.
Status drop_repeated_contents(StoreSet& stores, JobRequest request, JobPlan& plan, const DownloadOptions& options,
                              const DownloadRules& rules, const std::stop_token& stop, StageSummary& summary) {
  const auto memory = static_cast<int64_t>(plan_memory(options.memory_bytes, 1).body_bytes);
  while (true) {
    if (!has_all_parts(plan)) {
      log_info("download: repeated pictures are looked for once every item has its part");
      return Status::ok();
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool is_unique, is_known_unique(plan));
    if (is_unique) {
      return Status::ok();
    }
    DARKROOM_ASSIGN_OR_RETURN(request.redo, find_repeated_contents(plan, memory, stop));
    if (request.redo.empty()) {
      return note_unique(plan);
    }
    DARKROOM_RETURN_IF_ERROR(mark_duplicates(stores, request, options, rules, stop, summary));
    // Another process may have redone failed rows meanwhile, so that the parts are looked at again.
    DARKROOM_RETURN_IF_ERROR(plan.refresh(stop));
  }
}

void log_plan(const JobPlan& plan, const DownloadOptions& options) {
  if (!options.retry_failed.is_empty()) {
    log_info(
        "download: {} rows of {} parts failed with {} and are fetched again (round {}); {:.1f} GB of parts are written anew for them, "
        "and the old ones stay in _superseded/",
        plan.num_rows(), plan.num_pending(), options.retry_failed.text(), plan.retry_round(),
        static_cast<double>(plan.pending_work().rewritten_bytes) * 1e-9);
    return;
  }
  log_info("download: {} rows of {} input files, {} rows a part; {} rows are done, {} parts to go", plan.num_rows(), plan.inputs().size(),
           options.rows_per_file, plan.num_rows_before(), plan.num_pending());
}

}  // namespace

Status DownloadOptions::validate() const {
  if (output.empty()) {
    return Status::invalid_argument("the output folder must be named");
  }
  if (metadata.empty()) {
    return Status::invalid_argument("--metadata must name at least one URL table");
  }
  if (keep_failed && dialect == ImagesDialect::kImg2dataset) {
    return Status::invalid_argument(
        "--keep-failed needs Parquet: in a tar of --output-dialect img2dataset a row without a picture has no place");
  }
  if (dialect == ImagesDialect::kImg2dataset && (!retry_failed.is_empty() || dedup.content)) {
    return Status::invalid_argument(
        "--retry-failed and --dedup content need Parquet: parts of --output-dialect img2dataset have one generation");
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
  if (fetch.max_body_bytes > kMaxBodyBytes) {
    return Status::invalid_argument("--max-bytes must be at most 2,000,000,000, got:", fetch.max_body_bytes);
  }
  DARKROOM_RETURN_IF_ERROR(parse_where(where).status());
  DARKROOM_RETURN_IF_ERROR(selection.validate());
  return fetch.validate();
}

Status run_download(StoreSet& stores, const DownloadOptions& options, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (options.selection.on_demand && options.orders == nullptr) {
    return Status::invalid_argument("somebody must order the items that are done on demand");
  }
  DARKROOM_ASSIGN_OR_RETURN(const DownloadRules rules, read_rules(stores, options));
  JobRequest request;
  DARKROOM_ASSIGN_OR_RETURN(request.output, stores.resolve(options.output, Access::kWrite));
  // The URLs of all inputs are gone through for --dedup url, and several places do not tell where each lies.
  if (options.selection.items.empty() || (options.dedup.url && options.metadata.size() > 1)) {
    DARKROOM_ASSIGN_OR_RETURN(request.listed, list_job_inputs(stores, options.metadata));
  } else {
    request.list = [&] { return list_job_inputs(stores, options.metadata); };
    request.roots = input_roots(stores, options.metadata);
  }
  request.identity = make_identity(options, rules);
  request.check_columns = check_columns(options, rules.condition());
  request.selection = options.selection;
  request.retry = options.retry_failed;
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<JobPlan> plan, JobPlan::make(request, stop));
  log_plan(*plan, options);
  JobRun run(std::move(plan), tools_of_run(stores, options.selection.on_demand ? options.orders : nullptr));
  run.fill(summary);
  if (options.dry_run) {
    summary.pending_work = run.plan().pending_work();
    DARKROOM_RETURN_IF_ERROR(look_for_sizes(run.plan(), stop, summary.pending_work));
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<RunSpeed> speed, read_speed_file(run.output()));
    summary.pending_work.run_rows = speed ? speed->num_rows : 0;
    summary.pending_work.run_seconds = speed ? speed->seconds : 0;
    log_info("download: {} of {} items are to do; nothing was fetched or written", summary.num_pending, summary.num_items);
    return Status::ok();
  }
  Status status = work(run, options, rules, stop, summary);
  if (status.is_ok() && options.dedup.content && !options.selection.on_demand) {  // Of the whole job.
    status = drop_repeated_contents(stores, std::move(request), run.plan(), options, rules, stop, summary);
  }
  DARKROOM_RETURN_IF_ERROR(with_resume_advice(status, run.output().uri()));
  log_stages("download", summary);
  log_info("{}", summary.to_text("download"));
  return Status::ok();
}

Result<StageSummary> run_download(StoreSet& stores, const DownloadOptions& options, std::stop_token stop) {
  StageSummary summary;
  DARKROOM_RETURN_IF_ERROR(run_download(stores, options, std::move(stop), summary));
  return summary;
}

}  // namespace darkroom
