#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/feed/row_group_reader.h"
#include "darkroom/ingest/row_dialects.h"

namespace darkroom {

/// Random access to the rows of an image dataset, row groups cached. Thread safety: one object, one thread.
class ImageRowReader {
 public:
  /// Errors: those of find_image_columns and of the store.
  static Result<std::unique_ptr<ImageRowReader>> open(const DatasetFiles& dataset, const DatasetIndex& index, int64_t memory_bytes);

  /// A null picture comes out with empty bytes.
  Result<ImageRow> read(int64_t row);
  std::string describe(int64_t row) const { return reader_->describe(row); }
  int64_t num_rows() const { return reader_->index().num_rows(); }

 private:
  using Group = std::vector<ImageRow>;

  ImageRowReader(std::unique_ptr<RowGroupReader> reader, int64_t memory_bytes) : reader_(std::move(reader)), groups_(memory_bytes) {}
  Result<std::shared_ptr<const Group>> load(const RowGroupPlace& place, int64_t first_row_of_dataset);

  std::unique_ptr<RowGroupReader> reader_;
  LruCache<Group> groups_;
};

}  // namespace darkroom
