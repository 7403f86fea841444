#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/process/transform_row.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// How image datasets are read: encoded pictures are held once more meanwhile, no more of them than a few batches.
inline ReadOptions image_read_options() { return {.batch_bytes = 4 << 20, .max_batch_rows = 256}; }

/// The columns that ImageRows needs, and those that are carried along, each once.
std::vector<std::string> names_of(const ImageColumns& columns, const std::vector<std::string>& kept = {});

/// A row as it comes in.
struct ReadImageRow {
  ImageRow row;
  bool caption_was_invalid = false;  ///< Its invalid UTF-8 was replaced.
};

/// The rows of a record batch of an image dataset. Keeps what it needs of the batch alive. Thread safety: immutable.
class ImageRows {
 public:
  /// `first_list_row`: the number in the pinned list of the batch's row 0, which names a row whose key is missing or empty. Errors: those
  /// of BytesColumn.
  static Result<ImageRows> open(const std::string& path, const ImageColumns& columns, const arrow::RecordBatch& batch,
                                int64_t first_list_row);

  int64_t num_rows() const { return num_rows_; }
  /// Bytes of a row's picture and caption as they are stored.
  size_t num_bytes(int64_t row) const;
  /// A copy of a row. A null picture comes out with empty bytes; key and caption are valid UTF-8. REQUIRES: row < num_rows().
  ReadImageRow at(int64_t row) const;

 private:
  ImageRows(BytesColumn images, BytesColumn captions, BytesColumn keys, bool has_keys, int64_t first_list_row, int64_t num_rows)
      : images_(std::move(images)),
        captions_(std::move(captions)),
        keys_(std::move(keys)),
        has_keys_(has_keys),
        first_list_row_(first_list_row),
        num_rows_(num_rows) {}

  BytesColumn images_;
  BytesColumn captions_;
  BytesColumn keys_;  // Without a key column the captions stand in for it and are not read as keys.
  bool has_keys_;
  int64_t first_list_row_;
  int64_t num_rows_;
};

}  // namespace darkroom
