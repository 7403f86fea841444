#pragma once

#include <optional>

#include "darkroom/tables/where.h"
#include "deny_list.h"
#include "repeat_finder.h"

namespace darkroom {

/// Which rows a download leaves out. Immutable while rows are read; shared by its parts.
struct DownloadRules {
  std::optional<WhereExpression> where = {};
  std::optional<DenyList> denied = {};
  RowSet repeated_urls = {};     ///< Rows of the pinned list; found once the job is planned.
  bool only_duplicates = false;  ///< All rows that are read repeat a picture.

  const WhereExpression* condition() const { return where ? &*where : nullptr; }
};

}  // namespace darkroom
