#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/type_fwd.h>

#include <memory>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// The memory pool of everything that reads and writes tables: Arrow's own (ARROW_DEFAULT_MEMORY_POOL), which gives back
/// what large pages and batches took. Malloc, where networks run beside, keeps all that is freed (keep_freed_memory()).
arrow::MemoryPool* table_pool();

/// Ours from Arrow's: a Status of ours that went through Arrow comes back as it was; out of memory is
/// kResourceExhausted; everything else is `otherwise`. `what` is put before the message: what was being done, the path.
Status from_arrow(const arrow::Status& status, std::string_view what, StatusCode otherwise = StatusCode::kCorruptData);

/// Arrow's from ours, with ours kept inside for from_arrow.
arrow::Status to_arrow(const Status& status);

/// Reads an InputFile. Thread safety: ReadAt from any thread.
std::shared_ptr<arrow::io::RandomAccessFile> make_arrow_input(std::shared_ptr<const InputFile> file);

}  // namespace darkroom

/// Returns from the enclosing function when `expression` (an arrow::Status) is a failure; `what` as in from_arrow.
#define DARKROOM_RETURN_IF_ARROW_ERROR(expression, what)                     \
  do {                                                                       \
    if (::arrow::Status arrow_status_ = (expression); !arrow_status_.ok()) { \
      return ::darkroom::from_arrow(arrow_status_, (what));                  \
    }                                                                        \
  } while (false)
