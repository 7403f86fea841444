#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "process_batch.h"

namespace darkroom {

/// The good rows of an encoded batch.
class GoodRowsOfBatch {
 public:
  explicit GoodRowsOfBatch(const EncodedRows& encoded) : num_encoded_(static_cast<int64_t>(encoded.is_finite.size())) {
    for (size_t i = 0; i < encoded.is_finite.size(); ++i) {
      if (encoded.is_finite[i] != 0) {
        numbers_.push_back(static_cast<int64_t>(i));
      }
    }
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  /// Those of a tensor of all rows; the tensor itself where all are good.
  torch::Tensor of(const torch::Tensor& rows) const {
    return size() == num_encoded_ ? rows.contiguous() : rows.index_select(0, torch::tensor(numbers_, torch::kInt64));
  }

 private:
  const int64_t num_encoded_;
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
