#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "damage_log.h"
#include "darkroom/core/status.h"
#include "darkroom/show/inspect.h"
#include "table_kind.h"
#include "table_parts.h"

namespace darkroom {

/// What options.uri names.
struct TableInputs {
  std::vector<FileInfo> inputs = {};
  bool are_a_folders = false;  ///< All tables of a folder, so that a missing one is damage.
};

/// Text files up to this size are read once to count their rows, without being asked.
inline constexpr int64_t kMaxBytesCounted = int64_t{1} << 30;

/// What the tables are, with the shapes that their record says. REQUIRES: a schema.
TableKind kind_of_parts(const TableParts& parts);

/// What the footers say, as the first tables of the report: files and rows, rows by error, the columns. Not the job, which names places.
/// REQUIRES: a schema.
void describe_tables(const TableParts& parts, InspectReport& report);

/// Describes tables into `report`; what --verify finds goes to `damage`. Errors: as inspect().
Status inspect_tables(FileSystem& files, const TableInputs& tables, const InspectOptions& options, const std::stop_token& stop,
                      InspectReport& report, DamageLog& damage);

}  // namespace darkroom
