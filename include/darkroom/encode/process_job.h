#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/files/file_system.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

/// What is stored for the caption.
enum class TextKind : uint8_t { kEmbeddings, kTokens, kBoth };

struct ProcessOptions {
  std::string input;                ///< URI of the image dataset.
  std::string output;               ///< Folder of the latents dataset.
  std::string model;                ///< Model folder: vae, text_encoder, tokenizer.
  TransformOptions transform = {};  ///< Resolution, filter, crop, orientation.
  int batch_size = 0;               ///< Rows an encoder takes at once; 0: default_batch_size.
  LatentsKind latents = LatentsKind::kSample;
  TextKind text = TextKind::kEmbeddings;
  torch::Dtype dtype = torch::kFloat16;  ///< Storage type: kFloat16 or kFloat32.
  TokenizerDialect tokenizer_dialect = TokenizerDialect::kHuggingFace;
  uint64_t seed = 0;
  int64_t rows_per_file = 5000;  ///< Input rows a work item, and so a shard, covers.
  Selection selection = {};      ///< Which items this run does.
  int encoder_threads = 1;       ///< Intra-op threads of an encoder worker; they change bits.
  int num_readers = 0;           ///< Workers; 0: automatic.
  int num_transformers = 0;
  int num_encoders = 0;
  int64_t memory_bytes = 0;         ///< Of all queues and buffers together; 0: a quarter of the machine's.
  int num_visualized = 0;           ///< Samples on the picture; 0: none.
  std::string visualize_path = {};  ///< PNG to write.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Encoder batch of a resolution on the CPU: about as many pixels as 4 pictures of 512 x 512, at most 64.
int default_batch_size(int resolution);

/// Turns an image dataset into a latents dataset (docs/encode.md), going on where an earlier run of the same job stopped.
/// The bytes depend on the inputs, the models and the flags that belong to the job, not on worker counts or timing.
/// Errors: as run_download, and load_frozen_models'. A row's failure is never an error: it is counted under its code.
/// `summary` gets the counts, those of a job that failed or was stopped, too.
Status run_process(FileSystem& files, const ProcessOptions& options, std::stop_token stop, StageSummary& summary);
Result<StageSummary> run_process(FileSystem& files, const ProcessOptions& options, std::stop_token stop);

}  // namespace darkroom
