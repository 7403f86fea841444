#pragma once

#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// What tells the opened table at a place from another one, of what has no footer: its listing, or its size and its end. Errors: the
/// store's.
Result<std::string> hash_container(const Location& place, const TableReader& table);

}  // namespace darkroom
