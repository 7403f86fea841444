#pragma once

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/type.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

enum class TensorElement { kFloat16, kFloat32 };

/// Bytes of one element: 2 or 4.
int64_t element_bytes(TensorElement element);

/// IEEE half-precision bits of a float, rounded to nearest even (overflow: infinity), and back.
uint16_t half_bits(float value);
float float_of_half(uint16_t bits);

/// The Arrow type of a tensor column: the canonical extension arrow.fixed_shape_tensor, row-major.
std::shared_ptr<arrow::DataType> tensor_type(TensorElement element, const std::vector<int64_t>& shape);

/// A tensor column over `values` (all rows one after another; half-precision as its bits), copied.
/// Errors: kResourceExhausted. REQUIRES: values.size() is a multiple of a row's bytes; extents > 0.
Result<std::shared_ptr<arrow::Array>> make_tensor_column(TensorElement element, const std::vector<int64_t>& shape,
                                                         std::span<const std::byte> values);
/// The same over bytes that lie in a buffer, without a copy: the column keeps the buffer. REQUIRES: as above; aligned for its elements.
std::shared_ptr<arrow::Array> wrap_tensor_column(TensorElement element, const std::vector<int64_t>& shape,
                                                 std::shared_ptr<arrow::Buffer> values);

/// A column of tensors of one shape, in whatever form it was stored: arrow.fixed_shape_tensor, fixed or variable lists
/// (nested ones too) of float16, float32 or float64, raw little-endian blobs of float16 or float32, and Ray's tensor
/// extensions (their metadata is parsed as JSON data or ignored, never run). Every row is checked when it is opened.
/// Thread safety: immutable.
class TensorColumn {
 public:
  /// `field` names and describes the column `array`. `shape` is what the caller needs (empty: the file must say it); the
  /// file may say another one only with as many leading extents of 1. Raw blobs and lists take it from there.
  /// Errors: kFailedPrecondition (not a column of tensors, or of another shape) and kCorruptData (a row of another
  /// length), both naming the column, what it holds and what is needed.
  static Result<TensorColumn> open(const arrow::Field& field, const std::shared_ptr<arrow::Array>& array,
                                   const std::vector<int64_t>& shape = {});

  int64_t num_rows() const { return array_->length(); }
  const std::vector<int64_t>& shape() const { return shape_; }
  /// Elements of one row.
  int64_t num_elements() const { return num_elements_; }
  /// How elements are stored; nullopt for float64.
  std::optional<TensorElement> element() const { return element_; }
  bool is_null(int64_t row) const { return array_->IsNull(row); }
  /// The row's elements as stored, without a copy. REQUIRES: !is_null(row).
  std::span<const std::byte> bytes(int64_t row) const;
  /// The row's elements as floats. REQUIRES: !is_null(row), out.size() == num_elements().
  void read_floats(int64_t row, std::span<float> out) const;

 private:
  TensorColumn() = default;

  std::shared_ptr<arrow::Array> array_;     // Keeps the bytes alive; shared with the batch that it came from.
  std::vector<int64_t> row_offsets_bytes_;  // Of each row from `data_`; -1 for a null row.
  const std::byte* data_ = nullptr;
  int64_t bytes_per_element_ = 0;
  int64_t num_elements_ = 0;
  std::optional<TensorElement> element_;
  std::vector<int64_t> shape_;
};

}  // namespace darkroom
