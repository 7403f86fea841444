#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tune/planner.h"

namespace darkroom {

/// How fast steps of one batch size are, as a short run before the trials showed.
struct SpeedRecord {
  int64_t batch = 0;
  int64_t micro = 0;
  double steps_per_second = 0;
  double start_seconds = 0;  ///< That the run took beside its steps: loading, validation, a checkpoint.

  double images_per_second() const { return steps_per_second * static_cast<double>(batch); }
  bool operator==(const SpeedRecord&) const = default;
};

struct PlannedTrial {
  TrialSettings settings = {};
  int64_t batch = 0;         ///< Samples a step.
  int64_t full_steps = 0;    ///< Of the full length: its schedule.max_steps. 0: refused, see `refusal`.
  std::string refusal = {};  ///< Why the recipe code does not take these settings together.

  bool operator==(const PlannedTrial&) const = default;
};

/// What is tried, and how long: settled once, before the first trial.
struct TunePlan {
  std::string unit = {};  ///< "samples" or "seconds": what is equal between the trials.
  double length = 0;      ///< Of a full trial.
  std::vector<Rung> rungs = {};
  std::vector<PlannedTrial> trials = {};

  bool operator==(const TunePlan&) const = default;
};

/// How a stage ended.
struct StageEnd {
  StageResult result = {};
  int64_t step = 0;         ///< Steps done by the trial; also of one that failed, as far as its log tells.
  double seconds = 0;       ///< Wall time of this stage, all its starts in this process.
  int64_t peak_bytes = 0;   ///< Largest resident size of its process.
  int64_t num_sharing = 0;  ///< Trials that shared its machine, itself among them; 0: the ledger does not say.
  std::string reason = {};  ///< Of one that was not scored.
};

/// A stage that began and has not ended: it runs, or was cut by the budget or a stop.
struct BegunStage {
  Stage stage = {};
  int64_t num_sharing = 0;  ///< As of StageEnd.
};

/// Everything that the ledger says.
struct TuneRecord {
  nlohmann::ordered_json head = {};
  std::vector<SpeedRecord> speeds = {};
  std::optional<TunePlan> plan = {};
  std::vector<StageEnd> ends = {};
  std::vector<BegunStage> unfinished = {};
  double spent_seconds = 0;       ///< Of the budget.
  bool is_out_of_budget = false;  ///< Its last start ended because nothing more fitted in.

  std::vector<StageResult> results() const;
};

/// trials.jsonl (docs/formats/tune_folder.md): what a search was asked, and every thing that it found out, a line each, which survives a
/// power loss before the next thing is done. A torn last line is cut away. Thread safety: one object, one thread.
class TrialLedger {
 public:
  /// Opens it, or begins one with `head`: an object with whatever makes this search what it is, "recipe" and "search" at least.
  /// Errors: kFailedPrecondition (the ledger is of another search: what differs), kCorruptData naming file and line, those of the files.
  static Result<std::unique_ptr<TrialLedger>> open(FileSystem& files, const std::string& path, const nlohmann::ordered_json& head);

  const TuneRecord& record() const { return record_; }

  /// Each appends a line and takes it into the record. `spent_seconds`: of the budget, until now.
  Status add_speed(const SpeedRecord& speed, double spent_seconds);
  Status add_plan(const TunePlan& plan, double spent_seconds);
  Status add_begin(const BegunStage& begun, double spent_seconds);
  Status add_end(const StageEnd& end, double spent_seconds);
  /// This start of the search ends: nothing more fits into the budget, or it was stopped, or all is done.
  Status add_close(bool is_out_of_budget, double spent_seconds);

 private:
  TrialLedger() = default;
  Status append(nlohmann::ordered_json line, double spent_seconds);

  TuneRecord record_;
  std::unique_ptr<OutputFile> file_;
};

/// Reads a ledger's text; a torn last line is left aside. Errors: kCorruptData naming `name` and the line; kNotFound without a whole line.
Result<TuneRecord> read_ledger(std::string_view text, const std::string& name);

/// What differs between two heads, as "optimizer.lr (was 0.001, is 0.01)" texts.
std::vector<std::string> differing_fields(const nlohmann::ordered_json& now, const nlohmann::ordered_json& before);

}  // namespace darkroom
