#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/nn/placement.h"
#include "darkroom/process/process_job.h"
#include "darkroom/stores/stores.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

/// How the networks take the rows of a batch.
enum class Batching : uint8_t {
  kAuto,      ///< Alone on the CPU, together on a GPU.
  kAlone,     ///< One by one: a row's bits depend on nothing but the row.
  kTogether,  ///< All in one call, blank rows for those that failed: faster; a row's bits depend on the batch size, too.
};

/// A job with the networks that encode it.
struct ProcessOptions : ProcessJobOptions {
  std::string model;        ///< Model folder, in any store: vae, text_encoder, tokenizer.
  NetworkPlace place = {};  ///< Of the encoders: found by find_network_place.
  Batching batching = Batching::kAuto;
  std::optional<torch::Dtype> dtype = {};  ///< Storage type: kFloat16 or kFloat32; nothing: the dialect's own.
  TokenizerDialect tokenizer_dialect = TokenizerDialect::kHuggingFace;

  Status validate() const;  ///< kInvalidArgument naming the first bad field. A batch size of 0 is default_batch_size.
};

/// Encoder batch of a resolution: on the CPU about as many pixels as 4 pictures of 512 x 512 have, at most 64; on a GPU as 40, at most 120.
int default_batch_size(int resolution, const torch::Device& device = torch::kCPU);

/// run_process_job with the networks of `options`: the job's bytes depend on the models, too; a remote model is fetched into a scratch
/// folder below $TMPDIR first. Errors: run_process_job's, fetch_model_files', load_frozen_models'.
Status run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop, StageSummary& summary);
Result<StageSummary> run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop);

}  // namespace darkroom
