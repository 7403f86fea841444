#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/image/probe.h"
#include "darkroom/ingest/item_orders.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/ingest/retry_codes.h"
#include "darkroom/stores/stores.h"
#include "darkroom/web/fetch.h"

namespace darkroom {

class TraceRecorder;

enum class Validation : uint8_t {
  kHeader,  ///< Format, size and limits from the header.
  kFull,    ///< The data of every picture are also parsed to their end (check_image).
};

/// What makes a row a duplicate of an earlier one in the pinned list.
struct Dedup {
  bool url = false;
  bool content = false;  ///< The bytes of its picture.

  bool operator==(const Dedup&) const = default;
};

/// What the parts of an image dataset are (docs/formats/dialects.md).
enum class ImagesDialect : uint8_t {
  kDarkroom,     ///< Parquet.
  kImg2dataset,  ///< Webdataset tars.
};

struct DownloadOptions {
  std::string output;                 ///< URI of the image dataset's folder.
  std::vector<std::string> metadata;  ///< URIs of the URL tables.
  std::string url_column = {};        ///< Empty: by the known names.
  std::string caption_column = {};
  std::string where = {};          ///< Only rows that this condition keeps (tables/where.h); empty: all.
  std::string deny_list = {};      ///< URI of a list of hashes of URLs and pictures that are `denied`; empty: none.
  Dedup dedup = {};                ///< Such rows are `duplicate`.
  Selection selection = {};        ///< Which items this run does.
  ItemOrders* orders = nullptr;    ///< Of Selection::on_demand. Outlives the run.
  int64_t rows_per_file = 10'000;  ///< Input rows a work item, and so a shard, covers.
  ImagesDialect dialect = ImagesDialect::kDarkroom;
  ImageLimits limits = {};
  FetchOptions fetch = {};
  int64_t memory_bytes = 0;  ///< Of all queues and buffers together; 0: a quarter of the machine's.
  Validation validation = Validation::kHeader;
  RetryCodes retry_failed = {};        ///< Instead of making parts, redo the rows that failed with these codes; none: make parts.
  bool keep_failed = false;            ///< Failed rows stay as rows with a null image and an error code.
  bool dry_run = false;                ///< Plan only; nothing is fetched or written.
  int num_validators = 0;              ///< Workers that look at pictures; 0: one a processor.
  std::string scratch_folder = {};     ///< Of this machine, for pictures that wait for slower ones; empty: the output's disk, else /tmp.
  int64_t scratch_bytes = -1;          ///< At most; 0: none; negative: 20 GB, or half of what the disk has free.
  std::string decoder_program = {};    ///< darkroom-decoder, in which pictures are decoded (image/sandbox.h); empty: in this process.
  MetricsRegistry* metrics = nullptr;  ///< Outlives the run.
  TraceRecorder* trace = nullptr;      ///< Of spans of items, and of some of their rows; may be null. Outlives the run.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Turns URL tables into an image dataset (docs/ingest.md), going on where an earlier run of the same job stopped. The bytes depend on
/// the inputs, the flags that belong to the job and what the servers answered, on nothing else. Errors: kInvalidArgument (options);
/// kNotFound (inputs, columns), kFailedPrecondition (another job's folder, read-only output), kCorruptData (a damaged table or part),
/// kResourceExhausted (disk full), kCancelled (after committing what was complete). A row's failure is never an error: it is counted under
/// its code. `summary` gets the counts, those of a job that failed or was stopped, too. `stores` outlives the call.
Status run_download(StoreSet& stores, const DownloadOptions& options, std::stop_token stop, StageSummary& summary);
Result<StageSummary> run_download(StoreSet& stores, const DownloadOptions& options, std::stop_token stop);

}  // namespace darkroom
