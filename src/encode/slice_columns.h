#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/slices/slice_fleet.h"
#include "slice_encoder.h"

namespace darkroom {

// What an encoder service sends for a slice: an Arrow stream of one batch with the columns row (int64, as asked for), key (utf8), latents
// and states (tensors in the storage type).

/// What rows look like once they are encoded.
struct SliceForm {
  torch::Dtype dtype = torch::kFloat16;
  std::vector<int64_t> latents_shape;
  std::vector<int64_t> states_shape;

  /// Bytes of a row's tensors.
  int64_t row_bytes() const;
};
SliceForm form_of(const RowEncoder& encoder);

/// Everything that must be alike for the rows to have the bits that the trainer wants, by its name for people.
nlohmann::json slice_facts(const DatasetIndex& index, const RowEncoder& encoder);
/// What the bits depend on besides, which a trainer cannot know: where the networks run.
nlohmann::json slice_place(const RowEncoder& encoder, int threads);

/// A slice as a trainer holds it. The tensors hold all rows.
struct EncodedSlice : SliceContent {
  std::vector<std::string> keys;
  torch::Tensor latents_nchw;
  torch::Tensor states_btc;
};

/// Errors: kResourceExhausted. REQUIRES: as many results as rows, of this form.
Result<std::string> write_slice(const SliceForm& form, std::span<const int64_t> rows,
                                std::span<const std::shared_ptr<const EncodedRow>> encoded);
/// Errors: kCorruptData (no such stream, other rows, columns, types or shapes).
Result<std::shared_ptr<const EncodedSlice>> read_slice(const SliceForm& form, std::span<const int64_t> rows, std::string bytes);

}  // namespace darkroom
