#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "darkroom/files/store.h"

namespace darkroom {

/// How many bytes of a table's end are read to plan with: most footers lie within them.
inline constexpr int64_t kPlanningTailBytes = 64 << 10;

/// What planning needs of a Parquet footer.
struct QuickFooter {
  int64_t num_rows = 0;
  std::string_view schema = {};        ///< Its Thrift bytes, within the tail: equal bytes are equal columns of Parquet.
  std::string_view arrow_schema = {};  ///< What ARROW:schema says of their types (base64), within the tail; "" where there is none.
};

/// Reads the number of rows out of a Parquet file's end without building the footer. Takes any bytes: time and memory are linear in them.
/// Nothing where the tail does not hold a whole footer, or anything looks odd (another magic number, a length that cannot be, bytes that
/// are no Thrift, a footer of ours that differs from its own hash): then the full reader decides and says why (read_footer).
/// Source: parquet.thrift (FileMetaData), Thrift's compact protocol. Thread safety: any thread.
std::optional<QuickFooter> read_quick_footer(const ObjectTail& tail);

}  // namespace darkroom
