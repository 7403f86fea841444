#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "darkroom/batches/batcher.h"
#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/slices/slice_fleet.h"

namespace darkroom {

struct RemoteSourceOptions {
  SliceFleetOptions fleet;                  ///< Addresses, token, times; facts and sizes are filled in here.
  int64_t memory_bytes = int64_t{2} << 30;  ///< Of rows that are kept, newest first; what is expected comes on top.
};

/// Latents and states that encoders on other machines make: the bits of OnlineSource where these compute on the same kind of processor.
/// Slices of what is expected are asked for ahead of time; a row that is kept, or that has been asked for, is not asked for again.
/// Runs no network and opens no picture.
class RemoteSource : public SampleSource {
 public:
  /// `encoder` says what the encoders must be like. Errors: those of SliceFleet::open.
  static Result<std::unique_ptr<RemoteSource>> open(const DatasetFiles& dataset, const DatasetIndex& index, const RowEncoder& encoder,
                                                    const RemoteSourceOptions& options);
  ~RemoteSource() override;
  void expect(std::span<const SampleRef> samples) override;
  /// Errors: those of SliceFleet::take.
  Result<Batch> read(std::span<const SampleRef> samples) override;
  std::string describe(int64_t row) const override;
  void stop_waiting() override;

  /// Thread safety: any thread.
  FleetReport report() const;

 private:
  struct State;
  explicit RemoteSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
