#pragma once

#include <optional>

#include "darkroom/tables/where.h"
#include "deny_list.h"

namespace darkroom {

/// Which rows a download leaves out, read from its options. Immutable; shared by its parts.
struct DownloadRules {
  std::optional<WhereExpression> where = {};
  std::optional<DenyList> denied = {};

  const WhereExpression* condition() const { return where ? &*where : nullptr; }
};

}  // namespace darkroom
