#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "darkroom/batches/batcher.h"
#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/image/transform.h"

namespace darkroom {

// Both sources take rows of an image dataset (docs/formats/image_dataset.md). A row that process would drop (no picture, cannot
// be decoded, no caption, NaN latents) is replaced by the next good row of the dataset and counted in a warning, so the
// sequence equals the offline one exactly when process drops nothing. A row is worked out alone, so no batch, thread or
// restart changes its bits. Results are kept in memory, newest first, within the budget.

struct PictureSourceOptions {
  TransformOptions transform;
  uint64_t seed = 0;                        ///< Of random crops, which are fresh each epoch.
  int64_t memory_bytes = int64_t{2} << 30;  ///< Encoded pictures and decoded ones, together.
  std::string decoder_program = {};         ///< darkroom-decoder: pictures are decoded locked in (docs/sandbox.md); empty: in this process.
};

/// Pictures for the autoencoder objective: float32 [B, 3, R, R] in [-1, 1]. Uses no torch operation that runs threads.
class PictureSource : public SampleSource {
 public:
  /// Errors: kNotFound (a column is missing: the message names those that exist), those of the store and of open_decoder.
  static Result<std::unique_ptr<PictureSource>> open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                     const PictureSourceOptions& options);
  ~PictureSource() override;
  Result<Batch> read(std::span<const SampleRef> samples) override;
  std::string describe(int64_t row) const override;

 private:
  struct State;
  explicit PictureSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct OnlineSourceOptions {
  int64_t memory_bytes = int64_t{2} << 30;  ///< Encoded pictures and results, together.
  int64_t threads = 1;                      ///< Intra-op threads of the encoders, as process uses.
  int64_t training_threads = 1;             ///< Set back after each read.
  std::string decoder_program = {};         ///< As above.
};

/// Latents and states made here from pictures and captions: the same bits as process would have stored, because both go
/// through RowEncoder one row at a time and through the same storage type. Every epoch sees the same draws, as offline.
/// Runs the encoders on the calling thread (a Batcher with num_ahead = 0), because intra-op threads are a setting of the
/// whole process and part of the bits.
class OnlineSource : public SampleSource {
 public:
  /// Errors: as PictureSource::open.
  static Result<std::unique_ptr<OnlineSource>> open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                    std::shared_ptr<const RowEncoder> encoder, const OnlineSourceOptions& options);
  ~OnlineSource() override;
  Result<Batch> read(std::span<const SampleRef> samples) override;
  std::string describe(int64_t row) const override;

 private:
  struct State;
  explicit OnlineSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
