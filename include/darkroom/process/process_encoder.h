#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/process/transform_row.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

class JobRun;

/// Tensors of one shape, a row's after the other, as bytes in the storage type.
struct RowTensors {
  std::span<const std::byte> bytes = {};        ///< Of all rows; on the CPU, aligned for their elements.
  size_t row_bytes = 0;                         ///< Of one.
  std::shared_ptr<const void> owner = nullptr;  ///< Keeps the bytes: shared by whoever made them and the columns over them.

  std::span<const std::byte> row(size_t number) const { return bytes.subspan(number * row_bytes, row_bytes); }
};

/// A batch after the encoders, in the order of its rows.
struct StoredRows {
  RowTensors latents = {};
  RowTensors states = {};               ///< Empty without states.
  std::vector<uint8_t> is_finite = {};  ///< 0: the row's latents or states hold a NaN or an infinity (nan_latents). After a stop fewer.
};

/// What a job's record, its footers and its columns say of the networks.
struct EncoderFacts {
  std::string vae_fingerprint;
  std::string text_encoder_fingerprint;
  double scaling_factor = 0;
  std::vector<int64_t> latents_shape;  ///< Of a row: {C or 2C, R/f, R/f}.
  std::vector<int64_t> states_shape;   ///< Of a caption: {T, W}.
  TensorElement element = TensorElement::kFloat16;
  std::string device = "cpu";        ///< As people name it.
  std::string device_class = "cpu";  ///< "cpu" or "cuda": what results depend on.
  std::string compute_type = "float32";
  bool takes_rows_together = false;  ///< A batch in one call of the networks, not row by row.

  bool is_on_cpu() const { return device_class == "cpu"; }
};

/// Rows per second of one encoder worker on this machine.
struct TriedEncoder {
  double slowest = 0;
  double fastest = 0;
};

/// The networks of a process job, as the job sees them. Thread safety: const methods may run in many threads at once.
class ProcessEncoder {
 public:
  virtual ~ProcessEncoder() = default;

  virtual const EncoderFacts& facts() const = 0;
  virtual const ClipTokenizer& tokenizer() const = 0;

  /// Called by each worker on its thread before its first batch: sets what belongs to a thread and decides bits.
  virtual void begin_worker() const = 0;
  /// Runs the networks over the rows; what comes out after a stop is not whole. REQUIRES: rows not empty, made by prepare_row with
  /// tokenizer(). May throw.
  virtual StoredRows encode(std::span<const PreparedRow> rows, const std::stop_token& stop) const = 0;
  /// Writes the states of the empty caption into a latents dataset unless they are there; returns the SHA-256 of their bytes. Errors: the
  /// store's, kInternal (networks that throw). REQUIRES: with states.
  virtual Result<std::string> publish_empty_caption(const Location& output) const = 0;
  /// Encodes grey pictures for about two seconds, writes nothing. Errors: kResourceExhausted (no thread), kInternal.
  virtual Result<TriedEncoder> try_out() const = 0;
  /// Paints the first committed rows of the job's output into a PNG (--visualize). Errors: those of reading both sides and of writing.
  virtual Status paint_samples(const JobRun& run, const Location& picture) const = 0;
};

}  // namespace darkroom
