#pragma once

#include <arrow/util/key_value_metadata.h>

#include <memory>
#include <string>

#include "darkroom/tables/table_footer.h"

namespace darkroom {

/// A shard's footer key-values: those of `footer` with the content hash set in the shard's own record (made when absent), then the place
/// of the footer's hash. REQUIRES: the record is a JSON object.
std::shared_ptr<arrow::KeyValueMetadata> make_footer_pairs(KeyValues footer, const std::string& content_hash);

/// Fills in the footer's own hash. `footer`: its Thrift bytes with that place, their length, "PAR1".
void seal_footer(std::string& footer);

}  // namespace darkroom
