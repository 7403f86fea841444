#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/optim/lr_schedule.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

class GradientOverlap;
class GradientSum;
class RecordedStep;
class StepClock;
enum class StepPart;

struct TrainStepOptions {
  int64_t micro_batch = 64;  ///< Samples a forward and backward pass; the last one of a batch may be smaller.
  /// Equal parts of the batch whose gradients are added in a fixed tree, so that any number of ranks up to it has the same bits; it must
  /// divide the batch. 1: all micro-batches in order.
  int64_t gradient_groups = 1;
  bool fast_reduction = false;  ///< The library adds the ranks' gradients in its own order: bits depend on the number of ranks.
  /// What the sums of groups are kept and sent in: float32, or bfloat16, half the bytes. Each group's sum and each node below the root is
  /// rounded then, whoever needs it, so that bits do not depend on the number of ranks either. Not with fast_reduction.
  torch::ScalarType gradient_wire = torch::kFloat32;
  /// Several ranks: gradients are sent while the last backward pass of a step goes on, in pieces of about `bucket_elements`. No bit
  /// changes. On a GPU nothing is replayed then. With fast_reduction, or with several workers and passes, they are sent after it.
  bool overlaps = false;
  int64_t bucket_elements = int64_t{4} << 20;
  int64_t workers = 1;         ///< Micro-batches computed side by side, a thread and the memory of a pass each; changes no bit. CPU only.
  double max_grad_norm = 1.0;  ///< Clip the gradient to this norm; 0: do not.
  LrScheduleOptions schedule;  ///< Learning rate by step.
  /// On a GPU: record the passes over a micro-batch (of a DeviceBatch) and the update, and replay them (DeviceGraph). Changes no bit.
  bool replays = true;
  /// On a GPU: wait for it between phases, so that the report's milliseconds are the phases' own. Costs overlap, and nothing is replayed.
  bool waits_between_phases = false;

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
  /// Whether a step of so many ranks sends gradients while its last backward pass goes on.
  bool overlaps_among(int64_t num_ranks) const { return overlaps && !fast_reduction && num_ranks > 1; }
  /// Whether the passes of a step of so many ranks are recorded on `device` and replayed.
  bool records_passes(const torch::Device& device, int64_t num_ranks) const {
    return replays && !device.is_cpu() && !waits_between_phases && !overlaps_among(num_ranks);
  }
};

/// What one step did.
struct StepReport {
  int64_t step = 0;        ///< 0-based.
  double loss = 0.0;       ///< Mean over the batch.
  double grad_norm = 0.0;  ///< Before clipping.
  double learning_rate = 0.0;
  bool wants_stop = false;  ///< At least one rank asked to stop after this step.
  bool is_ahead = false;    ///< The device has not been waited for: loss and grad_norm are not known yet.
  // Milliseconds of the CPU: what a GPU does meanwhile is counted only with waits_between_phases, and in PhaseTimes. Recorded passes count
  // as backward.
  double forward_ms = 0.0;  ///< Draws, forward passes and losses.
  double backward_ms = 0.0;
  double update_ms = 0.0;  ///< Norm, clip, AdamW and EMA.
  double wait_ms = 0.0;    ///< For a GPU at the end, with the steps that ran ahead; of a step that runs ahead 0.
};

/// What a step's time goes into on the device that computes it. On a GPU by its own clock, from events between the phases, which nobody
/// waits for; together they are its time from TrainStep::begin_step() until the update's end.
struct PhaseTimes {
  int64_t step = 0;       ///< 0-based.
  double idle_ms = 0;     ///< Of a GPU: before the passes. For the batch, its way to the GPU and the host's own work.
  double forward_ms = 0;  ///< Of replayed passes split from backward_ms as the last one of each size was.
  double backward_ms = 0;
  double update_ms = 0;     ///< With several ranks their exchange of gradients and weights, too.
  double ended_ago_ms = 0;  ///< From its end until that of the last step that was told with it.
};

/// Losses (count) of samples [first, first + count) of the batch (the whole one, of which a rank is asked for its own), float on the
/// parameters' device, differentiable in the parameters. With several workers it is called from several threads at once.
using MicroBatchLosses = std::function<torch::Tensor(int64_t first, int64_t count)>;

/// A batch as tensors on the parameters' device, which a step can record.
struct DeviceBatch {
  int64_t size = 0;                   ///< Samples of all ranks.
  std::vector<torch::Tensor> inputs;  ///< Of this rank's samples in order, which are the first dimension.
  /// Losses (n) of n samples from their inputs, float on that device, differentiable in the parameters; the same function in every step.
  /// What differs between calls, random draws included, is in the inputs: a number of the host would be recorded with them. With several
  /// workers it is called from several threads at once.
  std::function<torch::Tensor(const std::vector<torch::Tensor>& inputs)> losses;
};

/// One training step: gradients of the batch's mean loss, accumulated over micro-batches (each weighted by its size, so that
/// the split does not change the mean), clipped, then AdamW and EMA. With the same intra-op threads the same bits.
/// With several ranks each computes its groups, owns a slice of moments, average and update (`optimizer` and `ema` must be those of its
/// slice), and gets the others' weights; losses, norm and stop requests of all go round in one message.
/// On a GPU a step with a DeviceBatch is replayed: one graph for each size of a micro-batch runs its passes, once the inputs are copied to
/// where it reads them, and adds into the gradients; one takes the norm, clips and updates. What else they need is on the device, too
/// (AdamWScalar). A graph's first calls are no replays (DeviceGraph), nor is what lies between: zeroing, the tree of gradient groups.
/// Inputs of another type, or of other sizes beside the samples, than the last step's have the passes recorded anew.
/// Thread safety: none.
class TrainStep {
 public:
  /// `ema` may be null. REQUIRES: options.validate() is ok; the others outlive this object.
  TrainStep(FlatParameters& parameters, AdamW& optimizer, Ema* ema, const TrainStepOptions& options, Communicator& ranks = lone_rank());
  ~TrainStep();

  /// Runs step `step` (0-based) on a batch of `batch_size` samples, those of all ranks together. `wants_stop`: see StepReport.
  /// Errors: kFailedPrecondition naming the step when the loss or the gradient is not finite; weights, moments and EMA are
  /// then as before, and non_finite_samples() says which samples of the batch had such a loss. kUnavailable: a rank is gone.
  Result<StepReport> run(int64_t step, int64_t batch_size, const MicroBatchLosses& losses, bool wants_stop = false);
  Result<StepReport> run(int64_t step, const DeviceBatch& batch, bool wants_stop = false);

  /// run() without its end: the host does not wait, so the device has the next step's work before it is done with this one's. Counts as
  /// an update; the next finish() or settle() looks at its numbers. After kMostAhead such steps one waits. One rank only.
  Result<StepReport> run_ahead(int64_t step, int64_t batch_size, const MicroBatchLosses& losses);
  Result<StepReport> run_ahead(int64_t step, const DeviceBatch& batch);
  /// Looks at the numbers of steps that ran ahead. Errors: that of the first one that was not finite, as run(); the steps after it have
  /// updated the weights nevertheless, so a run has to end.
  Status settle();
  static constexpr int64_t kMostAhead = 64;

  /// The step at hand begins here, for PhaseTimes: before its batch is there. Without this call, at run().
  void begin_step();
  /// Times of the steps since the last call, in order: once run() or settle() has waited for the device, those that ran ahead, too. At the
  /// most those of the last 2 * kMostAhead steps.
  std::vector<PhaseTimes> take_phase_times() { return std::exchange(phase_times_, {}); }

  /// Whether the last run failed because a loss or the gradient was not finite; report() then tells what it was.
  bool was_not_finite() const { return was_not_finite_; }
  const StepReport& report() const { return report_; }  ///< Of the step that failed, where steps ran ahead of it.
  /// Positions in the batch of the last run whose loss was not finite; empty when only the gradient was not.
  const std::vector<int64_t>& non_finite_samples() const { return non_finite_samples_; }

 private:
  // A forward and backward pass.
  struct PassSpan {
    int64_t first = 0;
    int64_t count = 0;
    int64_t group = 0;
    bool ends_group = false;
  };

  // Figures of a step that ran ahead, on the device.
  struct AheadStep {
    StepReport report;
    torch::Tensor losses, squared_norm;
  };

  // A step is these in turn, the middle one with a batch of either kind.
  void prepare(int64_t step, int64_t batch_size);
  void issue(const MicroBatchLosses& losses);
  void issue(const DeviceBatch& batch);
  Result<StepReport> finish();
  Status make_room_ahead();
  StepReport leave_ahead();

  GroupSpan own_groups() const;
  int64_t first_own_sample() const;
  std::vector<PassSpan> passes() const;
  void begin_passes();
  void accumulate(const MicroBatchLosses& losses);
  void accumulate_side_by_side(const MicroBatchLosses& losses);
  void accumulate_recorded(const DeviceBatch& batch);
  void pass_backward(const torch::Tensor& loss, bool is_last);
  void end_pass(const PassSpan& pass);
  Status update();
  void update_alone();
  Status exchange_figures();
  Status judge(const torch::Tensor& losses, double squared_norm);
  double sum_losses(const torch::Tensor& losses);
  void end_phase(double& phase_ms, StepPart part);
  void end_step_times();
  void read_phase_times();
  void bound_phase_times();

  FlatParameters& parameters_;
  AdamW& optimizer_;
  Ema* ema_;
  TrainStepOptions options_;
  Communicator& ranks_;
  std::unique_ptr<GradientSum> gradient_sum_;  // Null for one group and one rank.
  std::unique_ptr<GradientOverlap> overlap_;   // Null where nothing overlaps.
  std::unique_ptr<RecordedStep> recorded_;     // Null where nothing is replayed; its graphs read and write the tensors below.
  std::unique_ptr<StepClock> clock_;           // Null on the CPU.
  Status ranks_failure_;                       // Of the step under way.
  bool was_not_finite_ = false;
  std::vector<int64_t> non_finite_samples_;

  StepReport report_;     // Of the step under way.
  torch::Tensor losses_;  // float32 (batch size) on the device, and the squared norm, float64 (1): kept, because a graph knows them.
  torch::Tensor squared_norm_;
  torch::Tensor stop_votes_;      // float64 (1): how many of several ranks want to stop.
  torch::Tensor losses_staging_;  // The same on the CPU.
  torch::Tensor squared_norm_staging_;
  torch::Tensor stop_votes_staging_;
  std::vector<AheadStep> ahead_;
  std::vector<PhaseTimes> phase_times_;  // That nobody has taken yet.
  std::chrono::steady_clock::time_point phase_start_;
};

}  // namespace darkroom
