#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/encode/process_job.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/stream/reorder_buffer.h"
#include "darkroom/tables/shard_writer.h"
#include "darkroom/tables/tensor_column.h"
#include "process_batch.h"

namespace darkroom {

/// How the rows of a latents dataset are stored (docs/formats/latents_dataset.md).
struct LatentsLayout {
  TextKind text = TextKind::kEmbeddings;
  std::string latents_name;  ///< image_latents_256, image_moments_256.
  std::vector<int64_t> latents_shape;
  std::vector<int64_t> states_shape;
  TensorElement element = TensorElement::kFloat16;
  std::string footer;  ///< Value of the footer key darkroom.latents.

  bool has_states() const { return text != TextKind::kTokens; }
  bool has_ids() const { return text != TextKind::kEmbeddings; }
  std::shared_ptr<arrow::Schema> schema() const;
};

/// `empty_states_sha256` is the hash of the empty caption's states; empty without states.
LatentsLayout make_layout(const RowEncoder& encoder, TextKind text, const std::string& empty_states_sha256);

/// {resolution, resize, crop, orientation} as flags name them.
nlohmann::json describe_transform(const TransformOptions& options);

/// The shard of one item of a latents dataset: takes batches in any order, writes them in order, commits itself with the last one.
/// Thread safety: one thread.
class LatentsWriter {
 public:
  static Result<std::unique_ptr<LatentsWriter>> open(JobRun& run, std::shared_ptr<ProcessItem> item, const LatentsLayout& layout);

  /// Errors: those of ShardWriter. REQUIRES: an encoded batch of this item.
  Status add(ProcessBatch batch);
  bool is_committed() const { return is_committed_; }

 private:
  LatentsWriter(JobRun& run, std::shared_ptr<ProcessItem> item, const LatentsLayout& layout)
      : run_(run), item_(std::move(item)), layout_(layout) {}

  Status write_batch(const ProcessBatch& batch);

  JobRun& run_;
  std::shared_ptr<ProcessItem> item_;  // Shared with the batches that are still under way.
  const LatentsLayout& layout_;
  std::unique_ptr<ShardWriter> writer_;
  ReorderBuffer<ProcessBatch> reorder_;
  ItemTally tally_;
  bool is_committed_ = false;
};

}  // namespace darkroom
