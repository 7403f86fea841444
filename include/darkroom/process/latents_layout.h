#pragma once

#include <arrow/array.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/process/latents_dialect.h"
#include "darkroom/process/process_encoder.h"
#include "darkroom/process/process_job.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/tensor_forms.h"

namespace darkroom {

/// How the rows of a latents dataset are stored (docs/formats/latents_dataset.md, dialects.md).
struct LatentsLayout {
  LatentsDialect dialect = LatentsDialect::kDarkroom;
  TextKind text = TextKind::kEmbeddings;
  std::string latents_name;  ///< image_latents_256, image_moments_256, latents_256_bytes, ...
  std::string states_name;   ///< caption_embeddings, caption_latents.
  std::vector<int64_t> latents_shape;
  std::vector<int64_t> states_shape;
  TensorElement element = TensorElement::kFloat16;
  arrow::FieldVector kept = {};  ///< Columns of the image dataset that are carried along, last, as they are copied.
  std::string footer;            ///< Value of the footer key darkroom.latents.

  bool has_states() const { return text != TextKind::kTokens; }
  bool has_ids() const { return text != TextKind::kEmbeddings; }
  TensorForm form() const;
  /// Of a Parquet shard. REQUIRES: the dialect is one of Parquet.
  std::shared_ptr<arrow::Schema> schema() const;
  /// What stands in a shard's footer behind its record.
  KeyValues footer_pairs() const;
};

/// `empty_states_sha256` is the hash of the empty caption's states; empty without states.
LatentsLayout make_layout(const ProcessEncoder& encoder, const ProcessJobOptions& options, const std::string& empty_states_sha256,
                          arrow::FieldVector kept);

/// {resolution, resize, crop, orientation} as flags name them.
nlohmann::json describe_transform(const TransformOptions& options);

/// Whether the dialect can hold what the other flags ask for. Errors: kInvalidArgument naming the flag, the value and what to do.
Status check_dialect(const ProcessJobOptions& options);

/// Whether the column of token ids holds a vocabulary of so many: with --text tokens or both its ids have 16 bits. Errors:
/// kFailedPrecondition.
Status check_ids(TextKind text, int64_t vocabulary_size);

/// The storage type that the dialect was published with.
TensorElement published_element(LatentsDialect dialect);

/// Token ids, FixedSizeList<uint16>[77], as the dialect declares them.
std::shared_ptr<arrow::DataType> ids_type(LatentsDialect dialect);

/// The columns that were carried along as the layout stores them: a picture of Hugging Face's is a struct {bytes, path}. Errors:
/// kResourceExhausted.
Result<arrow::ArrayVector> store_kept(const LatentsLayout& layout, arrow::ArrayVector copied);

}  // namespace darkroom
