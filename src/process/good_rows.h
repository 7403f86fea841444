#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "darkroom/process/process_batch.h"

namespace darkroom {

/// The good rows of an encoded batch.
class GoodRowsOfBatch {
 public:
  explicit GoodRowsOfBatch(const StoredRows& encoded) : num_encoded_(encoded.is_finite.size()) {
    for (size_t i = 0; i < num_encoded_; ++i) {
      if (encoded.is_finite[i] != 0) {
        numbers_.push_back(static_cast<int64_t>(i));
      }
    }
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  /// Their tensors, one after another: those of all rows themselves where all are good, else copies.
  RowTensors of(const RowTensors& rows) const {
    if (numbers_.size() == num_encoded_) {
      return rows;
    }
    const size_t num_bytes = numbers_.size() * rows.row_bytes;
    const auto copies = std::make_shared_for_overwrite<std::byte[]>(num_bytes);
    std::byte* out = copies.get();
    for (const int64_t number : numbers_) {
      out = std::ranges::copy(rows.row(static_cast<size_t>(number)), out).out;
    }
    return {.bytes = {copies.get(), num_bytes}, .row_bytes = rows.row_bytes, .owner = copies};
  }

 private:
  const size_t num_encoded_;
  std::vector<int64_t> numbers_;
};

/// What was carried along with them, one after another; empty where nothing was.
inline std::vector<KeptRow> kept_of(const ProcessBatch& batch, const GoodRowsOfBatch& good) {
  std::vector<KeptRow> kept;
  for (const int64_t i : good.numbers()) {
    if (!batch.kept.empty()) {
      kept.push_back(batch.kept[static_cast<size_t>(batch.positions[static_cast<size_t>(i)] - batch.first_position)]);
    }
  }
  return kept;
}

}  // namespace darkroom
