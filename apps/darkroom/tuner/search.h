#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/files/file_system.h"
#include "darkroom/tune/trial_ledger.h"
#include "trial_process.h"
#include "tuner.h"

namespace darkroom {

/// One start of a search in its folder: what run_tune sets up and goes through. Thread safety: none.
class Search {
 public:
  Search(const TuneOptions& options, std::vector<SearchAxis> axes, std::stop_token stop);

  /// Makes or takes the folder. Errors: another process, another search, a damaged ledger.
  Status open();
  /// Until all stages have ended or the budget is spent. Errors: kCancelled when it was stopped.
  Status run();
  /// Writes the reports and fills the summary. Errors: kFailedPrecondition where no trial was scored.
  Status report(nlohmann::json& summary);

 private:
  /// Batch sizes that take the same time: batch.global, batch.micro.
  using SpeedClass = std::pair<int64_t, int64_t>;
  struct Running {
    Stage stage;
    double predicted = 0;
    std::unique_ptr<TrialProcess> process;
  };

  // Before the trials (search_plan.cpp).
  Status settle_plan();
  Status measure_speeds(const std::vector<TrialSettings>& trials);
  Result<std::optional<SpeedRecord>> measure_speed(const SpeedClass& speed_class);
  Result<TunePlan> make_plan(int64_t num_trials) const;
  double full_length(const TunePlan& plan) const;
  void set_steps(TunePlan& plan) const;
  bool is_long_enough(const TunePlan& plan) const;
  TrialQuestion question(int64_t num_trials) const;
  bool needs_speeds() const;
  double images_per_second(int64_t batch) const;  // As measured; 0: nothing is known.
  double start_seconds() const;

  // The trials (search_stages.cpp).
  Status run_stages();
  Status await_dead_trial(const std::string& run_folder) const;
  Status start_ready();
  Status start_stage(const Stage& stage, double predicted);
  Status collect();
  Status take_end(const Running& running, const ChildEnd& end);
  Result<StageEnd> judge(const Running& running, const ChildEnd& end) const;
  Status refuse(const Stage& stage, const std::string& reason);
  Status prune_checkpoints();
  Status stop_running();
  bool is_running(const Stage& stage) const;
  int64_t step_of(const Stage& stage) const;
  int64_t steps_done(const Stage& stage) const;
  double predicted_seconds(const Stage& stage) const;
  double seconds_per_sample() const;
  void tell(const StageEnd& end) const;
  void show_trials() const;

  std::vector<std::string> train_flags(const std::string& run_folder, int64_t stop_at, const std::vector<std::string>& settings) const;
  double spent() const;  // Seconds of the budget, of all starts.
  double remaining() const { return options_.budget_seconds - spent(); }
  const TuneRecord& record() const { return ledger_->record(); }
  const TunePlan& plan() const { return *record().plan; }
  int64_t num_trials() const { return static_cast<int64_t>(plan().trials.size()); }
  std::string in_folder(const std::string& name) const;

  const TuneOptions& options_;
  const std::vector<SearchAxis> axes_;
  const std::stop_token stop_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<TrialLedger> ledger_;
  std::vector<Running> running_;
  std::set<int64_t> pruned_;            // Trials whose checkpoints were removed here.
  std::map<Stage, int64_t> num_stops_;  // By somebody else's signal.
  bool is_out_of_budget_ = false;
  double spent_before_ = 0;      // By earlier starts.
  double actual_seconds_ = 0;    // Of the stages that ended here, and
  double foreseen_seconds_ = 0;  // what had been predicted for them.
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace darkroom
