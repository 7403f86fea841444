#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/lr_schedule.h"

namespace darkroom {

struct TrainStepOptions {
  int64_t micro_batch = 64;    ///< Samples a forward and backward pass; the last one of a batch may be smaller.
  double max_grad_norm = 1.0;  ///< Clip the gradient to this norm; 0: do not.
  LrScheduleOptions schedule;  ///< Learning rate by step.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// What one step did.
struct StepReport {
  int64_t step = 0;        ///< 0-based.
  double loss = 0.0;       ///< Mean over the batch.
  double grad_norm = 0.0;  ///< Before clipping.
  double learning_rate = 0.0;
  double forward_ms = 0.0;  ///< Draws, forward passes and losses.
  double backward_ms = 0.0;
  double update_ms = 0.0;  ///< Norm, clip, AdamW and EMA.
};

/// Losses (count) of samples [first, first + count) of the batch, differentiable in the parameters.
using MicroBatchLosses = std::function<torch::Tensor(int64_t first, int64_t count)>;

/// One training step: gradients of the batch's mean loss, accumulated over micro-batches (each weighted by its size, so that
/// the split does not change the mean), clipped, then AdamW and EMA. With the same threads the same bits.
/// Thread safety: none.
class TrainStep {
 public:
  /// `ema` may be null. REQUIRES: options.validate() is ok; the others outlive this object.
  TrainStep(FlatParameters& parameters, AdamW& optimizer, Ema* ema, const TrainStepOptions& options);

  /// Runs step `step` (0-based) on a batch of `batch_size` samples.
  /// Errors: kFailedPrecondition naming the step when the loss or the gradient is not finite; weights, moments and EMA are
  /// then as before, and non_finite_samples() says which samples of the batch had such a loss.
  Result<StepReport> run(int64_t step, int64_t batch_size, const MicroBatchLosses& losses);

  /// Positions in the batch of the last run whose loss was not finite; empty when only the gradient was not.
  const std::vector<int64_t>& non_finite_samples() const { return non_finite_samples_; }

 private:
  void accumulate(int64_t batch_size, const MicroBatchLosses& losses, StepReport& report);
  double sum_losses(const torch::Tensor& losses, int64_t first);

  FlatParameters& parameters_;
  AdamW& optimizer_;
  Ema* ema_;
  TrainStepOptions options_;
  std::vector<int64_t> non_finite_samples_;
};

}  // namespace darkroom
