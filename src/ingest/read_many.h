#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>

#include "darkroom/core/status.h"

namespace darkroom {

/// Calls read(0) ... read(count - 1) from up to `max_threads`: many small reads under way at once, as a store that answers slowly wants
/// them. Stops handing out numbers at the first failure, which it returns, or a stop. A thread has at least
/// `min_reads` to do: several, where one costs less than a thread. Errors: read's; kCancelled.
Status read_many(size_t count, const std::stop_token& stop, const std::function<Status(size_t index)>& read, size_t max_threads = 64,
                 size_t min_reads = 4);

}  // namespace darkroom
