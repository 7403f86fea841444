#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/core/status.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

struct EmaOptions {
  double decay = 0.9999;  ///< Share of the old average that an update keeps; 0: no average, its place is taken by the weights.
  bool warmup = true;     ///< Keep at most (1 + n) / (10 + n) at update n = 0, 1, ..., so that a short run forgets its start.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// Exponential moving average of flat parameters. AdamW::update feeds it. Thread safety: none.
class Ema {
 public:
  /// Starts at the parameters' values. REQUIRES: options.validate() is ok.
  Ema(const FlatParameters& parameters, const EmaOptions& options);
  /// The average of a part of the parameters: a rank's slice.
  Ema(const FlatParameters& parameters, const EmaOptions& options, const FlatRange& slice);

  /// What it averages: all, or a rank's slice.
  const FlatRange& slice() const { return slice_; }
  /// False at decay 0: weights() are then the parameters' own values and need no memory.
  bool averages() const { return options_.decay > 0.0; }
  /// float32 (slice().count) in the order of the flat parameters; write into it to restore a checkpoint.
  const torch::Tensor& weights() const { return weights_; }
  /// Starts anew at the parameters' present values.
  void restart(const FlatParameters& parameters);
  /// The share kept by update number `update` (0-based).
  double decay_at(int64_t update) const;

 private:
  EmaOptions options_;
  FlatRange slice_;
  torch::Tensor weights_;
};

/// Puts the averaged weights into the module for its lifetime (previews, validation) and the trained ones back, both
/// bit-exact and without another copy of the weights. Where ranks hold slices of the average, all of them open and close it together.
/// Thread safety: none; nothing may train meanwhile.
class EmaScope {
 public:
  /// Throws where the device has no memory for a block of a swap (16 MiB); nothing is swapped then.
  EmaScope(FlatParameters& parameters, Ema& ema, Communicator& ranks = lone_rank());
  /// A failure of the ranks or of the device on the way back is every later call's failure, too.
  ~EmaScope();
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;
  /// Whether the module holds the average. Errors: those of the ranks.
  const Status& status() const { return status_; }

 private:
  Status swap();

  FlatParameters& parameters_;
  Ema& ema_;
  Communicator& ranks_;
  const torch::Tensor block_;  // What a swap needs; undefined without averages.
  Status status_;
};

}  // namespace darkroom
