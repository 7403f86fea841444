#pragma once

#include <functional>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/process/process_encoder.h"

namespace darkroom {

/// Encodes grey pictures, as many at a time as the networks take together and in a thread of its own with so many intra-op threads, for
/// about two seconds: once to start with, which does not count, then at least once. Errors: those of run_apart.
Result<TriedEncoder> try_encoder(const RowEncoder& encoder, int num_threads);

/// Runs `task` in a thread of its own with so many intra-op threads, because that number belongs to the thread that sets it.
/// Errors: kResourceExhausted (no thread, no memory); kInternal with `doing` where it throws.
Status run_apart(int num_threads, const char* doing, const std::function<void()>& task);

}  // namespace darkroom
