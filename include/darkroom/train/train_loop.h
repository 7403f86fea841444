#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tensor/communicator.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

class TraceRecorder;

struct TrainOptions {
  Recipe recipe;  ///< Resolved: file, --set and flags.
  /// Where the step runs, as resolve_device (tensor/device.h) gives it: of the recipe's runtime.device, before anything of torch is used.
  std::string device = "cpu";
  std::string output;           ///< Run folder: local or on a store that can be written.
  std::string resume = "auto";  ///< "auto", "none" or a checkpoint's address.
  bool is_restart = false;      ///< This start follows one that was lost: newer checkpoints of the run folder are its own.
  std::string init_from;        ///< Address of a checkpoint or model folder whose weights the run starts from; empty: none.
  int64_t stop_at = 0;          ///< Ends after this step of the run as at its last one, but goes on there later; 0: schedule.max_steps.
  bool deterministic = false;   ///< Refuse operations that are not bit-reproducible.
  std::string trace_path;       ///< Safetensors file for checking; empty: none.
  int64_t trace_steps = 5;      ///< First steps that are traced.
  std::string decoder_program;  ///< darkroom-decoder: raw pictures are decoded locked in (docs/sandbox.md); empty: in this process.
  /// Encoders of other processes for recipe.data.raw_path: "HOST:PORT,..." or "@FILE" (slices/slice_fleet.h); empty: encoded in this one.
  std::string encoders;
  std::string encoder_token;                            ///< Which they must know; empty: they may have none.
  std::chrono::milliseconds encoder_timeout{120'000};   ///< Without a byte from one that owes something.
  std::chrono::milliseconds encoder_patience{600'000};  ///< Without any.
  /// The ranks that train together, this one among them; every one calls run_training with the same recipe. Rank 0 alone reads and
  /// writes the run folder. They outlive the call.
  Communicator* ranks = &lone_rank();
  int64_t local_ranks = 1;             ///< Ranks on this machine, which share its cores.
  Clock* clock = &system_clock();      ///< Of the waits for a store that does not take a checkpoint.
  MetricsRegistry* metrics = nullptr;  ///< Where this rank counts (docs/metrics.md); may be null. Outlives the call.
  TraceRecorder* spans = nullptr;      ///< Of this rank's steps; may be null. Outlives the call.
  bool counts_work = false;  ///< Counts what a step computes, and measures the rank's peak where it is not known, for the metrics.
  double rank_tflops = 0;    ///< Peak of a rank in 10^12 of them per second, for the metrics; 0: not known.

  /// kInvalidArgument naming the first bad field.
  Status validate() const;
  /// Of messages about a run that ends early: "the same command goes on", or the flag with which it does.
  std::string_view command_that_goes_on() const;
};

struct TrainSummary {
  int64_t parameters = 0;        ///< Trained scalars.
  int64_t steps = 0;             ///< Done in all, earlier starts included.
  int64_t samples = 0;           ///< Seen in all.
  int64_t rows = 0;              ///< Of the dataset.
  int64_t skipped = 0;           ///< Of the steps: left out, because a loss or the gradient was not finite.
  double loss_first = 0;         ///< Mean over the first 50 logged steps of the run, or its first half.
  double loss_last = 0;          ///< Mean over the last 50, or the last half.
  double images_per_second = 0;  ///< Of this start, hooks left aside.
  double seconds = 0;            ///< Of this start.
  int64_t machines = 0;          ///< On which its ranks run; 0: not known, as it could not begin.
  nlohmann::json online;         ///< With encoders elsewhere: which side waited (docs/train.md); null without.

  /// The keys of docs/formats/summary for `train`.
  nlohmann::json to_json() const;
};

/// Runs or goes on with a training run until schedule.max_steps, or the step to stop at (docs/train.md). A stop request ends it after the
/// step at hand with a checkpoint and kCancelled; the same call then goes on exactly there. Errors: kInvalidArgument (options);
/// kFailedPrecondition (the run folder, the checkpoint, the model and the dataset do not fit together; the loss is not finite); kNotFound,
/// kCorruptData, kResourceExhausted and kUnavailable of what it reads and writes, and when another rank is gone. Earlier checkpoints stay
/// as they were; a run that could not begin leaves no new folder. `summary` gets the figures, those of a run that failed or was stopped,
/// too. Thread safety: one run a process: intra-op threads are process-wide. The places of recipe and options are addresses of `stores`,
/// which outlive the call and whose reads no stop ends; a remote model or checkpoint is fetched into a scratch folder below $TMPDIR first,
/// and a remote run folder is filled from one.
Status run_training(StoreSet& stores, const TrainOptions& options, std::stop_token stop, TrainSummary& summary);
/// The same with the stores that the environment names.
Status run_training(const TrainOptions& options, std::stop_token stop, TrainSummary& summary);
Result<TrainSummary> run_training(const TrainOptions& options, std::stop_token stop);

}  // namespace darkroom
