#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/core/status.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/tensor/upload.h"

namespace darkroom {

struct AdamWOptions {
  double beta1 = 0.9;          ///< Decay of the first moment.
  double beta2 = 0.999;        ///< Decay of the second moment.
  double epsilon = 1e-8;       ///< Added to the root of the second moment.
  double weight_decay = 1e-2;  ///< Decoupled, on every parameter as in the reference recipe.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// AdamW (Loshchilov and Hutter 2019) as torch.optim.AdamW computes it, over flat buffers: gradient scale (clipping),
/// both moments, the update, the EMA and the compute copy in one pass over memory (ops/adamw_update.h).
/// Elementwise, so its bits do not depend on the number of threads. Thread safety: none.
class AdamW {
 public:
  /// REQUIRES: options.validate() is ok; `parameters` outlives this object.
  AdamW(FlatParameters& parameters, const AdamWOptions& options);
  /// One that updates a part of the parameters and has moments for it alone (ZeRO-1, Rajbhandari et al. 2020, arXiv 1910.02054).
  AdamW(FlatParameters& parameters, const AdamWOptions& options, const FlatRange& slice);

  /// One update with the gradients of the parameters times `gradient_scale`; updates `ema` too unless it is null.
  void update(double learning_rate, double gradient_scale, Ema* ema);

  // The same in three parts, of which the middle one can be captured in a graph.

  /// Sends the device what the next update needs to know.
  void prepare(double learning_rate, double max_grad_norm, const Ema* ema);
  /// Scales the gradient by ops' clip_scale of its squared norm, and updates. Changes nothing when the norm or a loss is not finite. Does
  /// not wait for the device. `losses`: float32 [N] on the device. REQUIRES: prepare() came before, with the same `ema`.
  void issue(const torch::Tensor& squared_norm, const torch::Tensor& losses, const Ema* ema);
  /// Counts the update, once the caller knows that norm and losses were finite.
  void count_update() { ++num_updates_; }

  /// Updates done so far; part of the state, because the bias correction depends on it.
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t num_updates) { num_updates_ = num_updates; }
  /// What it updates: all, or a rank's slice.
  const FlatRange& slice() const { return slice_; }
  /// float32 (slice().count) in the order of the flat parameters; write into them to restore a checkpoint.
  const torch::Tensor& first_moment() const { return first_moment_; }
  const torch::Tensor& second_moment() const { return second_moment_; }

 private:
  void send_scalars(double learning_rate, double gradient_scale, double max_grad_norm, const Ema* ema);
  AdamWArrays arrays(const Ema* ema) const;

  FlatParameters& parameters_;
  AdamWOptions options_;
  FlatRange slice_;
  torch::Tensor scalars_;       // float64 on the device; places by AdamWScalar.
  torch::Tensor next_scalars_;  // The same on the CPU.
  Upload upload_;
  torch::Tensor first_moment_;
  torch::Tensor second_moment_;
  int64_t num_updates_ = 0;
};

}  // namespace darkroom
