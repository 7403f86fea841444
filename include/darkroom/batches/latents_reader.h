#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/batches/batcher.h"
#include "darkroom/core/result.h"
#include "darkroom/feed/dataset_index.h"

namespace darkroom {

struct LatentsReaderOptions {
  int64_t resolution = 256;                 ///< Names the column: image_latents_256.
  std::vector<int64_t> latents_shape;       ///< {C, h, w} that the network takes.
  std::vector<int64_t> states_shape;        ///< {T, W} that the network takes.
  int64_t memory_bytes = int64_t{2} << 30;  ///< Decoded row groups kept; a dataset that fits is read once.
  bool keeps_float16 = false;               ///< What is stored as float16 stays so: half of the bytes on the way to a device.
};

/// Reads a latents dataset (docs/formats/latents.md): ours, or a published dialect (latents_256_bytes, caption_latents).
/// Latents and states come out as float32, however they are stored, unless keeps_float16. A row without a key (no such column, one of
/// another type than text or bytes, a null or an empty text) has its 12-digit number in the dataset.
///
/// Memory: the row groups used last, up to memory_bytes and one more. A run that shuffles in C lanes of W blocks works on
/// C * W blocks at a time; where these do not fit, row groups are read several times an epoch.
/// Shards of a remote store are read by ranges: a row group is a few requests.
/// Errors while reading: kNotFound (a column is missing: the message names those that exist), kFailedPrecondition (another
/// shape than the network takes; moments or token ids only), kCorruptData (damage, a null, a NaN or an infinity: file and
/// row are named). Thread safety: as SampleSource.
class LatentsReader : public SampleSource {
 public:
  static Result<std::unique_ptr<LatentsReader>> open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                     const LatentsReaderOptions& options);
  ~LatentsReader() override;

  Result<Batch> read(std::span<const SampleRef> samples) override;
  std::string describe(int64_t row) const override;

 private:
  struct State;
  explicit LatentsReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace darkroom
