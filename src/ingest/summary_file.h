#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/ingest/job_plan.h"

namespace darkroom {

inline constexpr const char* kSummaryFile = "_summary.json";

/// The text of _summary.json: totals, then an entry a part, one a line so that it can be read line by line.
std::string print_summary_file(const std::string& job_hash, const std::map<int64_t, CommittedPart>& parts);

/// The entries of _summary.json by the parts' names. What it says is taken only for a part of that name, size and fingerprint; whatever is
/// odd in it is left aside, and the part's own footer is read instead. Errors: the store's; a missing or unreadable file gives no entries.
Result<std::map<std::string, CommittedPart>> read_summary_file(const Location& output);

inline constexpr const char* kSpeedFile = "_speed.json";

/// How fast one run of a job was.
struct RunSpeed {
  int64_t num_rows = 0;
  double seconds = 0;
};
/// Leaves the speed of a run beside its parts, over that of an earlier one. Errors: the store's.
Status write_speed_file(const Location& output, const std::string& job_hash, const RunSpeed& speed);
/// The last one that was left; nothing where there is none, or one that cannot be read. Errors: the store's.
Result<std::optional<RunSpeed>> read_speed_file(const Location& output);

}  // namespace darkroom
