#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/trace_recorder.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/optim/adamw.h"
#include "darkroom/optim/ema.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/train_step.h"
#include "darkroom/stores/stores.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/event_writer.h"
#include "darkroom/train/metrics_log.h"
#include "darkroom/train/train_loop.h"
#include "goodput_ledger.h"
#include "previews.h"
#include "progress_line.h"
#include "remote_run.h"
#include "run_data.h"
#include "run_facts.h"
#include "spool_records.h"
#include "trace.h"
#include "train_metrics.h"
#include "trained_part.h"
#include "validation.h"

namespace darkroom {

/// One start of a training run: what run_training sets up, then loops over. Thread safety: none.
class TrainingRun {
 public:
  /// Sets everything up; the run folder holds recipe.toml and index.json afterwards. Errors: as run_training.
  /// `files` are this machine's; the stores outlive the run. `stop` ends what is fetched until then.
  static Result<std::unique_ptr<TrainingRun>> create(FileSystem& files, StoreSet& stores, const TrainOptions& options,
                                                     const std::stop_token& stop = {});

  Status run(const std::stop_token& stop);
  /// The figures so far, also after a failure. Errors: those of reading the metrics.
  Status sum_up(TrainSummary& summary) const;
  /// Of a run that failed: stores what was logged since the last checkpoint where the run folder is remote. Best effort.
  void store_logs_of_failure();
  /// Of a run that ends with `failure`: leaves the checkpoint that the store did not take on this machine, and says where.
  Status keep_unstored_checkpoint(Status failure);

 private:
  using Clock = std::chrono::steady_clock;

  TrainingRun(FileSystem& files, StoreSet& stores, TrainOptions options, std::stop_token stop)
      : files_(files), stores_(stores), options_(std::move(options)), stop_(std::move(stop)) {}

  Status set_up();
  // Setting up, in this order.
  Status fetch_inputs();
  void count_work();
  void find_peak();
  Status open_folder();
  Result<std::unique_ptr<FileLock>> lock_local_folder();
  Status open_local_folder();
  Status open_remote_folder(const Location& output);
  Result<bool> is_in_store(const FoundCheckpoint& found);
  Status open_diffusion(const std::string& weights_folder);
  Status open_autoencoder(const std::string& weights_folder);
  SliceFleetOptions fleet_options() const;
  Status read_index();
  Result<std::string> index_in_folder() const;
  Status check_data() const;
  Status check_window() const;
  Status open_optimizer();
  Status check_memory(const FlatParametersOptions& flat) const;
  Status restore_or_begin();
  Status share_beginning();
  Result<nlohmann::json> part_inputs() const;
  Status compare_inputs(const nlohmann::json& first, const nlohmann::json& own);
  Status open_outputs();
  Status open_logs();
  Status check_for_lost_checkpoints();
  // What a run that did not begin (a dataset that is not there) leaves behind: nothing.
  void remove_empty_folders();

  // One step, and what follows it.
  bool stopped_waiting(const Status& failure, const std::stop_token& stop) const;
  Result<StepTimes> step(const std::stop_token& stop);
  void record_phases(const SpanContext& step, Clock::time_point issued, const StepTimes& times);
  void record_device_phases(const SpanContext& step, const StepTimes& times);
  void record_phase(const SpanContext& step, const char* name, Clock::time_point from, Clock::time_point to,
                    SpanAttributes attributes) const;
  // What a step whose numbers were not finite costs: itself, or the run.
  Status skip_step(const Status& failure);
  // Whether nothing after the next step needs its numbers: a device need not be waited for.
  bool runs_ahead(bool wants_stop) const;
  Status settle();
  Status save_before(const Status& failure);
  Status save_at_end(const Status& failure);
  Status name_bad_samples(const Status& failure) const;
  Status after_step(const StepTimes& times);
  Result<nlohmann::ordered_json> validate();
  Status paint_previews();
  Status log_step(const StepTimes& times, const nlohmann::ordered_json& scores);
  Status run_steps(const std::stop_token& stop);
  // A save: at once where the run ends, else from a snapshot by a thread of its own.
  struct SaveJob {
    CheckpointRecord record;
    double seconds = 0;  // Of the run, at that step.
    AfterSaving after = AfterSaving::kGoesOn;
  };
  Status save(AfterSaving after);
  Status save_now(const SaveJob& job);
  Status store_written(const SaveJob& job);
  Status save_in_background(const SaveJob& job);
  bool background_save_has_ended() const;
  Status finish_background_save();
  Result<bool> may_save_again(const Status& failure);
  void end_background_save();
  void store_waiting_folders();
  Status write_checkpoint(const SaveJob& job, TrainingState& state);
  Result<bool> store_or_prune(const SaveJob& job);
  Status restore_lost_folder();
  void spend(Spending what);
  // Tells the other ranks that this one is not stuck, and what it does now; empty: from here on it may take any time.
  void get_on(const std::string& doing) const;
  void end_ledger();
  Status weigh_sides();

  const Recipe& recipe() const { return options_.recipe; }
  Communicator& ranks() const { return *options_.ranks; }
  torch::Device device() const { return torch::Device(options_.device); }
  bool is_main() const { return ranks().rank() == 0; }  // Rank 0, which keeps the run folder.
  bool validates() const { return !recipe().validation.path.empty(); }
  // An autoencoder shows pictures of its dataset instead of prompts.
  bool has_previews() const {
    return recipe().samples.every_steps > 0 && (!recipe().samples.prompts.empty() || recipe().objective.kind == "autoencoder");
  }
  StepWork step_work() const { return {step_flop_, peak_.tflops * static_cast<double>(ranks().size())}; }
  // Samples of a batch that this rank computes.
  FlatRange own_samples() const;
  int64_t skipped_steps() const { return steps_done_ - optimizer_->num_updates(); }
  const DatasetIndex* began_with() const { return index_.has_value() ? &*index_ : nullptr; }
  int64_t max_steps() const { return recipe().schedule.max_steps; }
  // Of this start: max_steps(), or before it.
  int64_t last_step() const { return options_.stop_at > 0 ? std::min(options_.stop_at, max_steps()) : max_steps(); }
  std::string in_folder(const char* name) const;
  // Wall time of the run, set-ups and hooks included; steps that a later start repeats count once.
  double wall_seconds() const;
  CheckpointRecord record() const;

  FileSystem& files_;
  StoreSet& stores_;
  TrainOptions options_;        // Its places are local ones once fetch_inputs() is done, but for the datasets and the output.
  const std::stop_token stop_;  // Of setting up.
  std::string resumed_from_;    // The checkpoint's address, for people.
  Recipe recorded_;             // The recipe as the run folder tells it: places as they were named, without what may be secret.
  double step_flop_ = 0;        // Floating-point operations of all ranks a step; 0: not known.
  RankPeak peak_;
  std::optional<LocalCopy> model_copy_;
  std::optional<LocalCopy> resume_copy_;
  std::optional<LocalCopy> init_copy_;
  std::unique_ptr<RemoteRun> remote_;  // Null where the run folder is local. Of rank 0, as all that has to do with the folder.
  std::string folder_;                 // The run folder; of a remote one its spool.
  std::unique_ptr<FileLock> lock_;     // Of a local one.
  std::optional<FoundCheckpoint> resumed_;
  bool is_resumed_from_here_ = false;  // The run folder has resumed_: it need not be saved again.

  std::shared_ptr<const FrozenModels> frozen_;  // Shared with the encoders of the online source; null when not needed.
  RunData data_;                                // The source moves on into batcher_.
  RemoteSource* remote_source_ = nullptr;       // That source, where encoders elsewhere feed it.
  std::optional<DatasetIndex> index_;           // That the run began with, where it goes on and its folder tells.
  std::string index_hash_;
  int64_t least_row_bytes_ = 0;  // Of latents and states as they are kept in memory; 0: it trains on pictures.
  std::unique_ptr<TrainedPart> part_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<Ema> ema_;
  std::unique_ptr<TrainStep> train_step_;
  std::unique_ptr<TrainingState> state_;
  StateSnapshot snapshot_;
  std::unique_ptr<Communicator> saving_ranks_;     // Of the thread that saves.
  std::unique_ptr<TrainingState> snapshot_state_;  // The same with the snapshot's values, by these ranks.
  std::unique_ptr<Batcher> batcher_;

  std::unique_ptr<Validation> validation_;  // Null without.
  std::unique_ptr<Previews> previews_;      // Null without.
  std::unique_ptr<TraceWriter> trace_;      // Null without.
  LostRecords lost_records_;                // Of the logs below, in a spool.
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<RunFactsFile> facts_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<GoodputLedger> ledger_;
  std::unique_ptr<ProgressLine> progress_;
  std::unique_ptr<TrainMetrics> shown_;  // Null without.

  const Clock::time_point began_ = Clock::now();                  // This start,
  const Clock::time_point ledger_began_ = options_.clock->now();  // and by the clock that the ledger counts by.
  int64_t steps_done_ = 0;
  int64_t batch_number_ = 0;     // Of the first step here.
  int64_t saved_step_ = -1;      // The newest checkpoint that the ranks have written, the same at all of them.
  int64_t stored_step_ = -1;     // Of rank 0: the newest one that is where it belongs; a store may not have taken saved_step_ yet.
  int64_t spooled_step_ = -1;    // Of a remote run: the checkpoint that is in the spool.
  bool stop_is_agreed_ = false;  // Several ranks: one of them asked for it in the last step.
  int64_t steps_here_ = 0;       // Of this start.
  double step_ms_here_ = 0;
  double wait_ms_here_ = 0;  // Of step_ms_here_: there was no batch.
  int64_t machines_ = 0;     // Of all ranks.
  nlohmann::json balance_;   // Of rank 0 with encoders elsewhere, at the end.
  int64_t logged_here_ = 0;  // steps_here_ and step_ms_here_ at the last line.
  double logged_ms_ = 0;
  // The samples of the steps whose numbers were not looked at yet, and of the last one.
  std::deque<std::pair<int64_t, std::vector<SampleRef>>> recent_samples_;
  // Spans of the steps whose phases the GPU has not told yet.
  std::deque<std::pair<int64_t, SpanContext>> untimed_steps_;
  double seconds_here_ = 0;  // Of the loop.

  std::vector<std::string> folders_to_store_;  // Of a remote run: previews that were painted while it saved.
  int64_t background_step_ = -1;               // Of the save below.
  std::atomic<bool> background_save_failed_ = false;
  // Whether the checkpoint is where it belongs; under way while it is valid. It uses this object, so it is destroyed, and waited for,
  // first.
  std::future<Result<bool>> background_save_;
};

}  // namespace darkroom
