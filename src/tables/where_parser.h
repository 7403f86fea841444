#pragma once

#include <string_view>

#include "darkroom/core/result.h"
#include "where_tree.h"

namespace darkroom {

/// The tree of an expression, columns as they were written. Errors: kInvalidArgument, see WhereExpression::parse.
Result<WhereNode> parse_where(std::string_view text);

}  // namespace darkroom
