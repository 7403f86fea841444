#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/image/transform.h"
#include "darkroom/ingest/item_orders.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/ingest/selection.h"
#include "darkroom/process/latents_dialect.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

class ProcessEncoder;
class TraceRecorder;

/// What a process job is, but for its networks.
struct ProcessJobOptions {
  std::string input;                ///< URI of the image dataset.
  std::string output;               ///< Folder of the latents dataset.
  TransformOptions transform = {};  ///< Resolution, filter, crop, orientation.
  int batch_size = 0;               ///< Rows an encoder takes at once; 0: ProcessOptions' default.
  LatentsKind latents = LatentsKind::kSample;
  TextKind text = TextKind::kEmbeddings;
  LatentsDialect dialect = LatentsDialect::kDarkroom;
  std::string caption_column = {};             ///< Of the image dataset; empty: by its name.
  std::vector<std::string> keep_columns = {};  ///< Columns of the image dataset to carry along.
  uint64_t seed = 0;
  int64_t rows_per_file = 5000;  ///< Input rows a work item, and so a shard, covers.
  Selection selection = {};      ///< Which items this run does.
  ItemOrders* orders = nullptr;  ///< Of Selection::on_demand. Outlives the run.
  int encoder_threads = 1;       ///< Intra-op threads of an encoder worker; they change bits.
  int num_readers = 0;           ///< Workers; 0: automatic.
  int num_transformers = 0;
  int num_encoders = 0;
  /// Transformers on other machines, as for read_encoder_addresses: they read and transform instead of this process. Empty: none.
  std::string transformers = {};
  std::string transformer_token = {};                       ///< Which they must know; empty: they may have none.
  std::chrono::milliseconds transformer_timeout{120'000};   ///< Without a byte from one that owes something.
  std::chrono::milliseconds transformer_patience{600'000};  ///< Without any of them.
  int64_t memory_bytes = 0;                                 ///< Of all queues and buffers together; 0: a quarter of the machine's.
  std::string decoder_program = {};    ///< darkroom-decoder: pictures are decoded locked in (docs/sandbox.md); empty: in this process.
  int num_visualized = 0;              ///< Samples on the picture; 0: none.
  std::string visualize_path = {};     ///< PNG to write.
  bool dry_run = false;                ///< Only looks and tries the encoder on a row or a few: nothing is written.
  MetricsRegistry* metrics = nullptr;  ///< Where the stages count, too; may be null.
  TraceRecorder* trace = nullptr;      ///< Of spans of items and their batches; may be null. Outlives the run.

  Status validate() const;  ///< kInvalidArgument naming the first bad field; a batch size of 0 is one.
};

/// Opens the job's encoder, once the input was listed.
using OpenProcessEncoder = std::function<Result<std::unique_ptr<const ProcessEncoder>>()>;

/// Turns an image dataset into a latents dataset (docs/process.md), going on where an earlier run of the same job stopped. Both may lie in
/// any store. The bytes depend on the inputs, the encoder and the fields that belong to the job, not on worker counts, the selection or
/// timing. Errors: as run_download, those of `open` and decoder_in_child's. A row's failure is never an error: it is counted under its
/// code. `summary` gets the counts, those of a job that failed or was stopped, too.
Status run_process_job(StoreSet& stores, const ProcessJobOptions& options, const OpenProcessEncoder& open, std::stop_token stop,
                       StageSummary& summary);

}  // namespace darkroom
