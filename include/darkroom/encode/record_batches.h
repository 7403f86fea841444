#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/image/transform.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tensor/gpu_turn.h"

namespace darkroom {

// What process does to a shard, done to one record batch of somebody else's data flow: nothing is read, planned or committed. As there, a
// row that fails is left out and counted under its code. Rows are named by their column `key`, which decides their draws, and each must
// have one; other tables of rows know a row by its number, which a batch has not.

/// What became of a batch.
struct RecordsOut {
  std::shared_ptr<arrow::RecordBatch> rows;  ///< The good ones, in their order; perhaps none.
  ItemTally tally;                           ///< Failed rows are numbered within the batch.
};

struct BatchTransformOptions {
  TransformOptions transform;
  uint64_t seed = 0;                           ///< Of random crops.
  std::string caption_column = {};             ///< Empty: by its name.
  std::vector<std::string> keep_columns = {};  ///< Columns to carry along.
  std::string decoder_program = {};  ///< darkroom-decoder: pictures are decoded locked in (docs/sandbox.md); empty: in this process.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Pictures to squares of bytes, for machines that have no encoder: key, caption, width, height and pixels_R, an
/// arrow.fixed_shape_tensor of uint8 [R, R, 3]. Thread safety: any number of threads; each has a decoder of its own.
class BatchTransformer {
 public:
  /// Errors: those of validate() and check_decoder.
  static Result<std::unique_ptr<BatchTransformer>> create(const BatchTransformOptions& options);
  ~BatchTransformer();

  /// Errors: find_image_columns', kFailedPrecondition (no column of keys, or a row without one), kNotFound (a column to keep), the
  /// decoder's.
  Result<RecordsOut> transform(const std::shared_ptr<arrow::RecordBatch>& batch);

 private:
  struct State;
  explicit BatchTransformer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Pictures, or the squares of a BatchTransformer with the same options, to the rows of a latents dataset: columns, types and bytes of the
/// Parquet parts that process writes of the same rows. Thread safety: any number of threads; on a GPU their networks take turns.
class BatchEncoder {
 public:
  /// Of `options` counts what decides a row (model, transform, place, batching with batch_size, latents, text, dialect, dtype,
  /// tokenizer_dialect, caption_column, keep_columns, seed, encoder_threads) and decoder_program. The model is loaded, and fetched where it
  /// is remote. Errors: kInvalidArgument (a field; the dialect mosaicml, which is not of record batches), those of loading and
  /// check_decoder. `gpu_turn`, unless null, is held while networks are loaded or at work on a GPU, for whatever else works there in this
  /// process; on the CPU it is not asked. REQUIRES: it outlives this.
  static Result<std::unique_ptr<BatchEncoder>> open(StoreSet& stores, const ProcessOptions& options, std::stop_token stop = {},
                                                    GpuTurn* gpu_turn = nullptr);
  ~BatchEncoder();

  /// Computes with encoder_threads intra-op threads on the calling thread, whose number is put back. Errors: BatchTransformer::transform's;
  /// kFailedPrecondition (squares of another size).
  Result<RecordsOut> encode(const std::shared_ptr<arrow::RecordBatch>& batch);

  const RowEncoder& encoder() const;

 private:
  struct State;
  explicit BatchEncoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
