#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

class LostRecords;  // spool_records.h

/// What the wall time of a run went into.
enum class Spending {
  kTraining,  ///< Steps that count, their logging among them.
  kDataWait,  ///< Waiting for the next batch.
  kSaving,    ///< Writing checkpoints, and storing them where the run folder is remote.
  kLooking,   ///< Validation and previews.
  kLost,      ///< Work whose result is gone: what followed the checkpoint that a later start went on from, and steps that were left out.
  kStarting,  ///< Setting up, and the time between the last sign of a start that died and the next one.
  kAway,      ///< Between a stop on request, or the end of the run, and the next start.
};
inline constexpr size_t kNumSpendings = 7;

/// Seconds by spending.
using SpentSeconds = std::array<double, kNumSpendings>;

/// goodput.jsonl of a run folder (docs/formats/run_folder.md): the spendings of all starts so far, which add up to the wall time since the
/// run began. Time is counted in laps, each up to now, so that none is missed or counted twice; what a later start makes worthless moves
/// to kLost. Lines are appended whole; a torn last one, of a machine that lost power, is cut away.
/// Thread safety: one object, one thread.
class GoodputLedger {
 public:
  /// Goes on after the earlier starts of the file, with `steps_done` steps that count. `began`: when this start did, by `clock`, which
  /// outlives the ledger; until now it was starting. Lines that cannot be read are passed over. `lost`: as for MetricsLog.
  /// Errors: those of the file system.
  static Result<std::unique_ptr<GoodputLedger>> open(FileSystem& files, const std::string& path, Clock& clock, Clock::Instant began,
                                                     int64_t steps_done, LostRecords* lost = nullptr);

  /// Goes on in a new file: the one of before is gone.
  Status move_to(FileSystem& files, const std::string& path);
  /// The time since the last call, or since the opening, went into this.
  void spend(Spending what);
  /// Appends a line of `steps_done` steps, but no more than a thousand or so in ten times the time, and one a second at most.
  Status record(int64_t steps_done);
  /// The same at once, and it survives a power loss: a checkpoint is there.
  Status record_saved(int64_t steps_done);
  /// The same: a checkpoint is being written of these steps while training goes on. Work behind them is behind that checkpoint.
  Status record_snapshot(int64_t steps_done);
  /// The same: the run ends here by itself or on request.
  Status record_end(int64_t steps_done);

  const SpentSeconds& spent() const { return spent_; }
  /// The share of training in the time that the run was not away; 0 at first.
  double goodput() const;

 private:
  GoodputLedger(Clock& clock, Clock::Instant began) : clock_(clock), began_(began), counted_(began), last_line_(began) {}
  Status append(int64_t steps_done, const char* event);

  Clock& clock_;
  const Clock::Instant began_;  // This start.
  Clock::Instant counted_;      // Up to here.
  Clock::Instant last_line_;
  double run_began_ = 0;  // Unix seconds.
  SpentSeconds spent_{};
  std::unique_ptr<OutputFile> file_;
};

/// The name of a spending in the ledger.
const char* spending_name(Spending what);

}  // namespace darkroom
