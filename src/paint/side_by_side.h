#pragma once

#include <cstdint>
#include <functional>

#include "darkroom/paint/painter.h"

namespace darkroom {

/// How many batches like those of a request are painted at a time: `asked`, or where that is 0 one for each processor and no more than
/// batches_that_fit in the machine's memory. One on a GPU, which has enough to do with it and records it for one thread.
int64_t choose_workers(const Painter& painter, const PaintRequest& request, int asked);

/// Calls work(0), ..., work(count - 1), begun in this order, `num_workers` at a time or as many as threads can be started, each with the
/// caller's number of threads inside an operation. None is begun after one failed. Errors: that of the least number, and what is thrown.
Status run_side_by_side(int64_t count, int64_t num_workers, const std::function<Status(int64_t)>& work);

}  // namespace darkroom
