#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/feed/lru_cache.h"
#include "darkroom/image/picture_decoder.h"
#include "good_picture_rows.h"

namespace darkroom {

/// A row as training takes it, in the encoder's storage type.
struct EncodedRow {
  std::string key;
  torch::Tensor latents_chw;
  torch::Tensor states_tw;

  int64_t num_bytes() const { return static_cast<int64_t>(latents_chw.nbytes() + states_tw.nbytes() + key.size() + sizeof(EncodedRow)); }
};

struct SliceEncoderOptions {
  int64_t memory_bytes = int64_t{2} << 30;  ///< Encoded pictures and results, together.
  int threads = 1;                          ///< Intra-op threads of a worker: part of the bits.
  int num_workers = 1;
  std::string decoder_program = {};  ///< darkroom-decoder; empty: pictures are decoded in this process.
};

/// Encodes rows of an image dataset by their numbers, whichever are asked for: what the online source does here and an encoder service for
/// others. A row that process would drop is replaced by the next good one of the dataset. Results are kept, newest first, within the
/// budget. Thread safety: a worker's calls from one thread at a time, those of several workers at once.
class SliceEncoder {
 public:
  /// Errors: kNotFound (a column is missing), those of the store and of open_decoder.
  static Result<std::unique_ptr<SliceEncoder>> open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                    std::shared_ptr<const RowEncoder> encoder, const SliceEncoderOptions& options);

  /// The rows in this order; sets the calling thread's intra-op threads. Errors: kFailedPrecondition (not one row of the dataset can be
  /// used), those of reading and of the decoder. REQUIRES: 0 <= row < rows of the dataset, 0 <= worker < num_workers.
  Result<std::vector<std::shared_ptr<const EncodedRow>>> encode(int worker, std::span<const int64_t> rows);
  const RowEncoder& encoder() const { return *encoder_; }
  std::string describe(int64_t row) const { return rows_->describe(row); }

 private:
  struct OpenRow {
    int64_t row = 0;    // That was asked for;
    int64_t tries = 0;  // so many after it were no good.
  };

  SliceEncoder(std::shared_ptr<const RowEncoder> encoder, const SliceEncoderOptions& options, std::unique_ptr<GoodPictureRows> rows,
               std::vector<std::unique_ptr<PictureDecoder>> decoders);
  Result<PreparedRow> prepare(int worker, OpenRow& open);
  Status encode_new(int worker, std::vector<OpenRow> open, std::vector<std::pair<int64_t, std::shared_ptr<const EncodedRow>>>& made);

  std::shared_ptr<const RowEncoder> encoder_;  // Shared with the caller, who asks it for the empty caption.
  const SliceEncoderOptions options_;
  std::unique_ptr<GoodPictureRows> rows_;
  std::vector<std::unique_ptr<PictureDecoder>> decoders_;  // Of the workers.
  std::mutex mutex_;
  LruCache<EncodedRow> encoded_;  // Guarded by mutex_.
};

}  // namespace darkroom
