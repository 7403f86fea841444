#pragma once

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {

/// The footer key under which a latents dataset says what made it (docs/formats/latents_dataset.md).
inline constexpr const char* kLatentsFooterKey = "darkroom.latents";

/// How a column of tensors is stored for its readers (docs/formats/dialects.md). TensorColumn reads all of them.
enum class TensorForm : uint8_t {
  kFixedShape,        ///< arrow.fixed_shape_tensor.
  kRayTensor,         ///< ray.data.arrow_tensor_v2: a large list a row; the shape is JSON in the field's metadata.
  kHuggingFaceArray,  ///< Array2D, Array3D, ... of Hugging Face's datasets: lists in lists, nullable as that package declares all of its.
};

/// The field of such a column. Extension types that are not Arrow's own stand in the field's metadata, where each reader that knows them
/// finds them. REQUIRES: extents > 0; of kHuggingFaceArray 2 to 5 of them.
std::shared_ptr<arrow::Field> tensor_field(const std::string& name, TensorForm form, TensorElement element,
                                           const std::vector<int64_t>& shape);

/// The column over `values` (all rows one after another), which it keeps and does not copy. Errors: kResourceExhausted (memory, more than
/// 2^31 - 1 elements in lists of 32-bit offsets). REQUIRES: values.size() is a multiple of a row's bytes; aligned for its elements.
Result<std::shared_ptr<arrow::Array>> wrap_tensors(TensorForm form, TensorElement element, const std::vector<int64_t>& shape,
                                                   std::shared_ptr<arrow::Buffer> values);

}  // namespace darkroom
