#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/encode/latents_dialect.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/ingest/item_orders.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/ingest/selection.h"
#include "darkroom/nn/placement.h"
#include "darkroom/stores/stores.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

class TraceRecorder;

/// What is stored for the caption.
enum class TextKind : uint8_t { kEmbeddings, kTokens, kBoth };

/// How the networks take the rows of a batch.
enum class Batching : uint8_t {
  kAuto,      ///< Alone on the CPU, together on a GPU.
  kAlone,     ///< One by one: a row's bits depend on nothing but the row.
  kTogether,  ///< All in one call, blank rows for those that failed: faster; a row's bits depend on the batch size, too.
};

struct ProcessOptions {
  std::string input;                ///< URI of the image dataset.
  std::string output;               ///< Folder of the latents dataset.
  std::string model;                ///< Model folder, in any store: vae, text_encoder, tokenizer.
  TransformOptions transform = {};  ///< Resolution, filter, crop, orientation.
  NetworkPlace place = {};          ///< Of the encoders: found by find_network_place.
  int batch_size = 0;               ///< Rows an encoder takes at once; 0: default_batch_size.
  Batching batching = Batching::kAuto;
  LatentsKind latents = LatentsKind::kSample;
  TextKind text = TextKind::kEmbeddings;
  LatentsDialect dialect = LatentsDialect::kDarkroom;
  std::optional<torch::Dtype> dtype = {};  ///< Storage type: kFloat16 or kFloat32; nothing: the dialect's own.
  TokenizerDialect tokenizer_dialect = TokenizerDialect::kHuggingFace;
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

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Encoder batch of a resolution: on the CPU about as many pixels as 4 pictures of 512 x 512 have, at most 64; on a GPU as 40, at most 120.
int default_batch_size(int resolution, const torch::Device& device = torch::kCPU);

/// Turns an image dataset into a latents dataset (docs/encode.md), going on where an earlier run of the same job stopped. Both may lie in
/// any store; a remote model is fetched into a scratch folder below $TMPDIR first. The bytes depend on the inputs, the models and the flags
/// that belong to the job, not on worker counts, the selection or timing. Errors: as run_download, fetch_model_files', load_frozen_models'
/// and decoder_in_child's. A row's failure is never an error: it is counted under its code. `summary` gets the counts, those of a job that
/// failed or was stopped, too.
Status run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop, StageSummary& summary);
Result<StageSummary> run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop);

}  // namespace darkroom
