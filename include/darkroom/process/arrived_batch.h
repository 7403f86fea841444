#pragma once

#include <arrow/type_fwd.h>

#include <memory>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

/// The first batch of an Arrow stream that a peer sent, validated; its columns are views of `bytes`. Packed (compressed) bodies, which no
/// peer of ours sends, are refused: a small message could claim gigabytes; so is metadata above 64 KiB, or that names one text many times.
/// Memory: at most about the message's own length and a few MiB besides it.
/// Errors: kCorruptData, beginning with `what`.
Result<std::shared_ptr<arrow::RecordBatch>> read_arrived_batch(std::string bytes, std::string_view what);

}  // namespace darkroom
