#include "darkroom/tables/tensor_column.h"

#include <arrow/extension/fixed_shape_tensor.h>
#include <arrow/extension_type.h>
#include <arrow/util/checked_cast.h>
#include <arrow/util/float16.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "darkroom/core/nested_text.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {

namespace {

using arrow::internal::checked_cast;
using Shape = std::vector<int64_t>;

/// The product of the extents; -1 when one is not positive or the product is beyond any real tensor.
int64_t count_elements(const Shape& shape) {
  constexpr int64_t kMaxElements = int64_t{1} << 40;
  int64_t product = 1;
  for (const int64_t extent : shape) {
    if (extent <= 0 || product > kMaxElements / extent) {
      return -1;
    }
    product *= extent;
  }
  return product;
}

std::shared_ptr<arrow::DataType> arrow_element(TensorElement element) {
  return element == TensorElement::kFloat16 ? arrow::float16() : arrow::float32();
}

/// Where the elements of a column lie, and what its form says about their shape.
struct Layout {
  std::string column;
  std::shared_ptr<arrow::Array> values;  // The innermost array: floats or blobs.
  std::vector<int64_t> first = {};       // Of each row, in elements (blobs: bytes) of `values`; -1 for a null row.
  int64_t count = -1;                    // Elements (blobs: bytes) of every row; -1 when there is no row.
  Shape shape = {};                      // As far as the nesting says.
  bool shape_is_certain = false;         // An extension type or nesting states it; a flat list or blob does not.

  Status wrong(StatusCode code, std::string_view why) const {
    return Status::make(code, "reading tensors: " + std::string(why) + " (column):", column);
  }
};

Status merge_count(Layout& layout, int64_t& common, int64_t count, int64_t row) {
  if (common >= 0 && count != common) {
    return Status::corrupt_data("reading tensors: a row has another length (column, row, want, got):", layout.column, row, common, count);
  }
  common = count;
  return Status::ok();
}

template <typename ListType>
Status enter_rows(const ListType& lists, Layout& layout) {
  for (int64_t row = 0; row < lists.length(); ++row) {
    if (lists.IsNull(row)) {
      layout.first.push_back(-1);
      continue;
    }
    layout.first.push_back(lists.value_offset(row));
    DARKROOM_RETURN_IF_ERROR(merge_count(layout, layout.count, lists.value_length(row), row));
  }
  return Status::ok();
}

/// One level deeper: what a row's elements were are lists, which must be whole, of one length and one after another.
template <typename ListType>
Status enter_lists(const ListType& lists, Layout& layout) {
  int64_t extent = -1;
  for (size_t row = 0; row < layout.first.size(); ++row) {
    const int64_t begin = layout.first[row];
    if (begin < 0 || layout.count == 0) {
      continue;
    }
    layout.first[row] = lists.value_offset(begin);
    for (int64_t i = 0; i < layout.count; ++i) {
      DARKROOM_RETURN_IF_ERROR(
          merge_count(layout, extent, lists.IsNull(begin + i) ? 0 : lists.value_length(begin + i), static_cast<int64_t>(row)));
      if (lists.value_offset(begin + i) != layout.first[row] + i * extent) {
        return layout.wrong(StatusCode::kCorruptData, "the lists of a row do not follow one another");
      }
    }
  }
  layout.count = layout.count < 0 || extent < 0 ? -1 : layout.count * extent;
  layout.shape.push_back(extent);
  return Status::ok();
}

/// Calls `visit` with the list array's own type.
Status visit_list(const arrow::Array& array, const auto& visit) {
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return visit(checked_cast<const arrow::ListArray&>(array));
    case arrow::Type::LARGE_LIST:
      return visit(checked_cast<const arrow::LargeListArray&>(array));
    default:
      return visit(checked_cast<const arrow::FixedSizeListArray&>(array));
  }
}

bool is_plain_list(const arrow::Array& array) {
  return array.type_id() == arrow::Type::LIST || array.type_id() == arrow::Type::LARGE_LIST ||
         array.type_id() == arrow::Type::FIXED_SIZE_LIST;
}

Result<Layout> lay_out_lists(const std::string& column, const std::shared_ptr<arrow::Array>& array) {
  Layout layout{.column = column, .values = array};
  bool outermost = true;
  while (is_plain_list(*layout.values)) {
    const auto step = [&](const auto& lists) {
      DARKROOM_RETURN_IF_ERROR(outermost ? enter_rows(lists, layout) : enter_lists(lists, layout));
      layout.values = lists.values();
      return Status::ok();
    };
    const std::shared_ptr<arrow::Array> lists = layout.values;
    DARKROOM_RETURN_IF_ERROR(visit_list(*lists, step));
    if (outermost) {
      layout.shape.push_back(layout.count);
    }
    outermost = false;
  }
  layout.shape_is_certain = layout.shape.size() > 1;
  return layout;
}

template <typename BlobType>
Result<Layout> lay_out_blobs(const std::string& column, const std::shared_ptr<arrow::Array>& array, const auto& offset_of,
                             const auto& length_of) {
  Layout layout{.column = column, .values = array};
  const auto& blobs = checked_cast<const BlobType&>(*array);
  for (int64_t row = 0; row < blobs.length(); ++row) {
    layout.first.push_back(blobs.IsNull(row) ? -1 : offset_of(blobs, row));
    if (!blobs.IsNull(row)) {
      DARKROOM_RETURN_IF_ERROR(merge_count(layout, layout.count, length_of(blobs, row), row));
    }
  }
  return layout;
}

Result<Layout> lay_out(const std::string& column, const std::shared_ptr<arrow::Array>& array) {
  const auto offset = [](const auto& blobs, int64_t row) { return static_cast<int64_t>(blobs.value_offset(row)); };
  const auto length = [](const auto& blobs, int64_t row) { return static_cast<int64_t>(blobs.value_length(row)); };
  switch (array->type_id()) {
    case arrow::Type::BINARY:
      return lay_out_blobs<arrow::BinaryArray>(column, array, offset, length);
    case arrow::Type::LARGE_BINARY:
      return lay_out_blobs<arrow::LargeBinaryArray>(column, array, offset, length);
    case arrow::Type::FIXED_SIZE_BINARY: {
      const int64_t width = checked_cast<const arrow::FixedSizeBinaryType&>(*array->type()).byte_width();
      return lay_out_blobs<arrow::FixedSizeBinaryArray>(
          column, array, [width](const auto&, int64_t row) { return row * width; }, [width](const auto&, int64_t) { return width; });
    }
    default:
      break;
  }
  if (!is_plain_list(*array)) {
    return Status::failed_precondition("reading tensors: the column does not hold any (column, type):", column, array->type()->ToString());
  }
  return lay_out_lists(column, array);
}

/// The shape in the metadata of Ray's tensor extensions. Data only: what is not a JSON list of extents is ignored.
Shape shape_of_metadata(const arrow::Field& field) {
  if (field.metadata() == nullptr) {
    return {};
  }
  const auto text = field.metadata()->Get("ARROW:extension:metadata");
  const auto json = parse_json(text.ok() ? *text : "");
  Shape shape;
  for (const auto& extent : json.is_array() ? json : nlohmann::json::array()) {
    if (!extent.is_number_integer()) {
      return {};
    }
    shape.push_back(extent.get<int64_t>());
  }
  return count_elements(shape) > 0 ? shape : Shape{};
}

/// The stored array under an extension type, and the shape that the type states.
Result<std::shared_ptr<arrow::Array>> unwrap(const arrow::Field& field, const std::shared_ptr<arrow::Array>& array, Shape& shape) {
  shape = shape_of_metadata(field);
  if (array->type_id() == arrow::Type::EXTENSION) {
    const auto* type = dynamic_cast<const arrow::extension::FixedShapeTensorType*>(array->type().get());
    if (type != nullptr) {
      shape = type->shape();
      Shape identity(type->permutation().size());
      std::iota(identity.begin(), identity.end(), 0);
      if (type->permutation() != identity) {
        return Status::failed_precondition("reading tensors: a permuted layout is not supported (column, type):", field.name(),
                                           array->type()->ToString());
      }
    }
    return checked_cast<const arrow::ExtensionArray&>(*array).storage();
  }
  if (array->type_id() == arrow::Type::STRUCT) {  // Ray's tensors of variable shape: {data, shape}.
    if (auto data = checked_cast<const arrow::StructArray&>(*array).GetFieldByName("data"); data != nullptr && array->null_count() == 0) {
      return data;
    }
  }
  return array;
}

Status choose_shape(Layout& layout, const Shape& stated, const Shape& wanted, Shape& shape) {
  const bool has_rows = layout.count >= 0;
  Shape stored = stated.empty() ? layout.shape : stated;
  const bool is_certain = !stated.empty() || layout.shape_is_certain;
  if (has_rows && count_elements(stored) != layout.count) {
    return Status::corrupt_data(
        fmt::format("reading tensors: the column's type states another size than its rows have (column, type, rows): {} [{}] {}",
                    layout.column, fmt::join(stored, ", "), layout.count));
  }
  shape = wanted.empty() ? stored : wanted;
  if (wanted.empty() || (!has_rows && !is_certain)) {
    return Status::ok();
  }
  while (stored.size() > wanted.size() && stored.front() == 1) {
    stored.erase(stored.begin());
  }
  if (has_rows && (is_certain ? stored != wanted : count_elements(wanted) != layout.count)) {
    return Status::failed_precondition(fmt::format("reading tensors: column {} holds tensors of shape [{}], but [{}] is needed",
                                                   layout.column, fmt::join(stored, ", "), fmt::join(wanted, ", ")));
  }
  return Status::ok();
}

bool is_blob(const arrow::Array& array) {
  return array.type_id() == arrow::Type::BINARY || array.type_id() == arrow::Type::LARGE_BINARY ||
         array.type_id() == arrow::Type::FIXED_SIZE_BINARY;
}

/// Element type of blobs of `num_bytes` that hold `num_elements`.
Result<TensorElement> blob_element(const Layout& layout, int64_t num_elements) {
  if (num_elements <= 0) {
    return layout.wrong(StatusCode::kFailedPrecondition, "the column holds raw bytes and nothing says their shape");
  }
  for (const TensorElement element : {TensorElement::kFloat16, TensorElement::kFloat32}) {
    if (layout.count < 0 || layout.count == num_elements * element_bytes(element)) {
      return element;
    }
  }
  return Status::failed_precondition("reading tensors: raw bytes are neither float16 nor float32 of the shape (column, elements, bytes):",
                                     layout.column, num_elements, layout.count);
}

const std::byte* blob_data(const arrow::Array& array) {
  switch (array.type_id()) {
    case arrow::Type::BINARY:
      return reinterpret_cast<const std::byte*>(checked_cast<const arrow::BinaryArray&>(array).raw_data());
    case arrow::Type::LARGE_BINARY:
      return reinterpret_cast<const std::byte*>(checked_cast<const arrow::LargeBinaryArray&>(array).raw_data());
    default:
      return reinterpret_cast<const std::byte*>(checked_cast<const arrow::FixedSizeBinaryArray&>(array).raw_values());
  }
}

Status check_elements(const Layout& layout) {
  if (layout.values->null_count() == 0) {
    return Status::ok();
  }
  for (const int64_t first : layout.first) {
    for (int64_t i = 0; first >= 0 && i < layout.count; ++i) {
      if (layout.values->IsNull(first + i)) {
        return layout.wrong(StatusCode::kCorruptData, "a tensor has a null element");
      }
    }
  }
  return Status::ok();
}

}  // namespace

int64_t element_bytes(TensorElement element) { return element == TensorElement::kFloat16 ? 2 : 4; }

uint16_t half_bits(float value) { return arrow::util::Float16::FromFloat(value).bits(); }

float float_of_half(uint16_t bits) {
  // The half's exponent and mantissa, read as a float's, are 2^112 times too small (exponent biases 127 - 15).
  const float magnitude = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7fff) << 13) * 0x1p112f;
  const uint32_t special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;  // Infinity and NaN
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | special | sign);
}

std::shared_ptr<arrow::DataType> tensor_type(TensorElement element, const Shape& shape) {
  const int64_t num_elements = count_elements(shape);
  DARKROOM_CHECK(num_elements > 0 && num_elements <= std::numeric_limits<int32_t>::max(), "not a tensor's shape (elements):", num_elements);
  return arrow::extension::fixed_shape_tensor(arrow_element(element), shape);
}

Result<std::shared_ptr<arrow::Array>> make_tensor_column(TensorElement element, const Shape& shape, std::span<const std::byte> values) {
  auto buffer = arrow::AllocateBuffer(static_cast<int64_t>(values.size()), table_pool());
  DARKROOM_RETURN_IF_ARROW_ERROR(buffer.status(), "making a tensor column");
  std::copy(values.begin(), values.end(), reinterpret_cast<std::byte*>((*buffer)->mutable_data()));
  return wrap_tensor_column(element, shape, *std::move(buffer));
}

std::shared_ptr<arrow::Array> wrap_tensor_column(TensorElement element, const Shape& shape, std::shared_ptr<arrow::Buffer> values) {
  const std::shared_ptr<arrow::DataType> type = tensor_type(element, shape);
  const int64_t row_bytes = count_elements(shape) * element_bytes(element);
  const int64_t num_bytes = values->size();
  DARKROOM_CHECK(num_bytes % row_bytes == 0, "the values are no whole number of rows (bytes, a row's bytes):", num_bytes, row_bytes);
  const auto elements =
      arrow::MakeArray(arrow::ArrayData::Make(arrow_element(element), num_bytes / element_bytes(element), {nullptr, std::move(values)}, 0));
  const auto& storage_type = checked_cast<const arrow::ExtensionType&>(*type).storage_type();
  const auto storage = std::make_shared<arrow::FixedSizeListArray>(storage_type, num_bytes / row_bytes, elements);
  return arrow::ExtensionType::WrapArray(type, storage);
}

Result<TensorColumn> TensorColumn::open(const arrow::Field& field, const std::shared_ptr<arrow::Array>& array, const Shape& shape) {
  Shape stated;
  DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<arrow::Array> storage, unwrap(field, array, stated));
  DARKROOM_ASSIGN_OR_RETURN(Layout layout, lay_out(field.name(), storage));
  TensorColumn column;
  column.array_ = storage;
  if (is_blob(*layout.values)) {
    if (layout.values != storage) {
      return layout.wrong(StatusCode::kFailedPrecondition, "lists of raw bytes are not tensors");
    }
    column.shape_ = shape.empty() ? stated : shape;
    column.num_elements_ = column.shape_.empty() ? 0 : count_elements(column.shape_);
    DARKROOM_ASSIGN_OR_RETURN(column.element_, blob_element(layout, column.num_elements_));
    column.bytes_per_element_ = element_bytes(*column.element_);
    column.data_ = blob_data(*storage);
    column.row_offsets_bytes_ = std::move(layout.first);
    return column;
  }
  const arrow::Type::type leaf = layout.values->type_id();
  if (leaf != arrow::Type::HALF_FLOAT && leaf != arrow::Type::FLOAT && leaf != arrow::Type::DOUBLE) {
    return layout.wrong(StatusCode::kFailedPrecondition,
                        "its elements are no floating-point numbers but " + layout.values->type()->ToString());
  }
  DARKROOM_RETURN_IF_ERROR(check_elements(layout));
  DARKROOM_RETURN_IF_ERROR(choose_shape(layout, stated, shape, column.shape_));
  column.num_elements_ = count_elements(column.shape_);
  if (leaf != arrow::Type::DOUBLE) {
    column.element_ = leaf == arrow::Type::HALF_FLOAT ? TensorElement::kFloat16 : TensorElement::kFloat32;
  }
  column.bytes_per_element_ = layout.values->type()->bit_width() / 8;
  if (const auto& buffer = layout.values->data()->buffers[1]) {  // Null when there is no element.
    column.data_ = reinterpret_cast<const std::byte*>(buffer->data()) + layout.values->offset() * column.bytes_per_element_;
  }
  for (int64_t& first : layout.first) {
    first = first < 0 ? -1 : first * column.bytes_per_element_;
  }
  column.row_offsets_bytes_ = std::move(layout.first);
  return column;
}

std::span<const std::byte> TensorColumn::bytes(int64_t row) const {
  DARKROOM_CHECK(row >= 0 && row < num_rows() && !is_null(row), "no such tensor (row):", row);
  return {data_ + row_offsets_bytes_[static_cast<size_t>(row)], static_cast<size_t>(num_elements_ * bytes_per_element_)};
}

void TensorColumn::read_floats(int64_t row, std::span<float> out) const {
  const std::span<const std::byte> stored = bytes(row);
  DARKROOM_CHECK(static_cast<int64_t>(out.size()) == num_elements_, "a tensor has another number of elements (want, got):", out.size(),
                 num_elements_);
  // Blobs need not be aligned, so every element is copied out.
  const auto convert = [&]<typename Stored>(Stored, const auto& to_float) {
    for (size_t i = 0; i < out.size(); ++i) {
      Stored value;
      std::memcpy(&value, stored.data() + i * sizeof(Stored), sizeof(Stored));
      out[i] = to_float(value);
    }
  };
  if (!element_) {
    convert(double{}, [](double value) { return static_cast<float>(value); });
  } else if (*element_ == TensorElement::kFloat16) {
    convert(uint16_t{}, float_of_half);
  } else {
    std::memcpy(out.data(), stored.data(), stored.size());
  }
}

}  // namespace darkroom
