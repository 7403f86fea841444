#pragma once

#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/encode/process_job.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/tables/paged_shard_writer.h"
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
  arrow::FieldVector kept = {};  ///< Columns of the image dataset that are carried along, last.
  std::string footer;            ///< Value of the footer key darkroom.latents.

  bool has_states() const { return text != TextKind::kTokens; }
  bool has_ids() const { return text != TextKind::kEmbeddings; }
  std::shared_ptr<arrow::Schema> schema() const;
};

/// `empty_states_sha256` is the hash of the empty caption's states; empty without states.
LatentsLayout make_layout(const RowEncoder& encoder, TextKind text, const std::string& empty_states_sha256, arrow::FieldVector kept);

/// {resolution, resize, crop, orientation} as flags name them.
nlohmann::json describe_transform(const TransformOptions& options);

/// Rows of a row group, so that a block of training is one read.
inline constexpr int64_t kLatentsGroupRows = 256;

/// The shard of one item of a latents dataset. Its tensors go to the file from where the encoder put them. Memory: the rows of a row group.
class LatentsWriter : public ItemWriter<ProcessBatch> {
 public:
  /// `run` and `layout` outlive the writer. Errors: the store's.
  static Result<std::unique_ptr<LatentsWriter>> open(JobRun& run, const WorkItem& work, const LatentsLayout& layout);

  /// Errors: PagedShardWriter's.
  Status add(int64_t position, ProcessBatch batch) override;
  Result<std::unique_ptr<FinishedItem>> finish() override;

 private:
  LatentsWriter(JobRun& run, const WorkItem& work, const LatentsLayout& layout)
      : run_(run), work_(work), layout_(layout), schema_(layout.schema()) {}

  Status write_rows(const ProcessBatch& batch);

  JobRun& run_;
  const WorkItem work_;
  const LatentsLayout& layout_;
  const std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<PagedShardWriter> shard_;
  ItemTally tally_;
};

}  // namespace darkroom
