#include "darkroom/tables/tensor_forms.h"

#include <arrow/util/key_value_metadata.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {

namespace {

constexpr const char* kExtensionName = "ARROW:extension:name";
constexpr const char* kExtensionMetadata = "ARROW:extension:metadata";

std::shared_ptr<arrow::DataType> form_element(TensorElement element) {
  return element == TensorElement::kFloat16 ? arrow::float16() : arrow::float32();
}

int64_t num_elements_of(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    product *= extent;
  }
  return product;
}

std::shared_ptr<arrow::KeyValueMetadata> extension(std::string name, std::string metadata) {
  return arrow::key_value_metadata({kExtensionName, kExtensionMetadata}, {std::move(name), std::move(metadata)});
}

/// Offsets of `num_lists` lists of `extent` elements each.
template <typename Offset>
Result<std::shared_ptr<arrow::Buffer>> even_offsets(int64_t num_lists, int64_t extent) {
  if (num_lists > (std::numeric_limits<Offset>::max() - 1) / extent) {
    return Status::resource_exhausted(
        "wrapping tensors: more elements than lists of 32-bit offsets hold (lists, elements of each):", num_lists, extent);
  }
  auto buffer = arrow::AllocateBuffer((num_lists + 1) * static_cast<int64_t>(sizeof(Offset)), table_pool());
  DARKROOM_RETURN_IF_ARROW_ERROR(buffer.status(), "wrapping tensors");
  auto* offsets = (*buffer)->template mutable_data_as<Offset>();
  for (int64_t i = 0; i <= num_lists; ++i) {
    offsets[i] = static_cast<Offset>(i * extent);
  }
  return std::shared_ptr<arrow::Buffer>(*std::move(buffer));
}

std::shared_ptr<arrow::Array> flat_elements(TensorElement element, std::shared_ptr<arrow::Buffer> values) {
  const int64_t count = values->size() / element_bytes(element);
  return arrow::MakeArray(arrow::ArrayData::Make(form_element(element), count, {nullptr, std::move(values)}, 0));
}

Result<std::shared_ptr<arrow::Array>> wrap_ray_tensors(TensorElement element, const std::vector<int64_t>& shape,
                                                       std::shared_ptr<arrow::Buffer> values) {
  const int64_t extent = num_elements_of(shape);
  const std::shared_ptr<arrow::Array> elements = flat_elements(element, std::move(values));
  const int64_t num_rows = elements->length() / extent;
  DARKROOM_ASSIGN_OR_RETURN(auto offsets, even_offsets<int64_t>(num_rows, extent));
  return std::shared_ptr<arrow::Array>(
      std::make_shared<arrow::LargeListArray>(arrow::large_list(elements->type()), num_rows, std::move(offsets), elements));
}

/// From the innermost lists outwards.
Result<std::shared_ptr<arrow::Array>> wrap_nested_lists(TensorElement element, const std::vector<int64_t>& shape,
                                                        std::shared_ptr<arrow::Buffer> values) {
  std::shared_ptr<arrow::Array> lists = flat_elements(element, std::move(values));
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    const int64_t num_lists = lists->length() / *extent;
    DARKROOM_ASSIGN_OR_RETURN(auto offsets, even_offsets<int32_t>(num_lists, *extent));
    lists = std::make_shared<arrow::ListArray>(arrow::list(lists->type()), num_lists, std::move(offsets), lists);
  }
  return lists;
}

}  // namespace

std::shared_ptr<arrow::Field> tensor_field(const std::string& name, TensorForm form, TensorElement element,
                                           const std::vector<int64_t>& shape) {
  DARKROOM_CHECK(num_elements_of(shape) > 0, "not a tensor's shape (column):", name);
  switch (form) {
    case TensorForm::kFixedShape:
      return arrow::field(name, tensor_type(element, shape), false);
    case TensorForm::kRayTensor:
      return arrow::field(name, arrow::large_list(form_element(element)), true,
                          extension("ray.data.arrow_tensor_v2", fmt::format("[{}]", fmt::join(shape, ", "))));
    case TensorForm::kHuggingFaceArray:
      break;
  }
  DARKROOM_CHECK(shape.size() >= 2 && shape.size() <= 5, "datasets has no array of so many extents (column, extents):", name, shape.size());
  std::shared_ptr<arrow::DataType> type = form_element(element);
  for (size_t i = 0; i < shape.size(); ++i) {
    type = arrow::list(type);
  }
  return arrow::field(
      name, type, true,
      extension(fmt::format("datasets.features.features.Array{}DExtensionType", shape.size()),
                fmt::format("[[{}], \"{}\"]", fmt::join(shape, ", "), element == TensorElement::kFloat16 ? "float16" : "float32")));
}

Result<std::shared_ptr<arrow::Array>> wrap_tensors(TensorForm form, TensorElement element, const std::vector<int64_t>& shape,
                                                   std::shared_ptr<arrow::Buffer> values) {
  const int64_t row_bytes = num_elements_of(shape) * element_bytes(element);
  const int64_t num_bytes = values->size();
  DARKROOM_CHECK(num_bytes % row_bytes == 0, "the values are no whole number of rows (bytes, a row's bytes):", num_bytes, row_bytes);
  switch (form) {
    case TensorForm::kFixedShape:
      return wrap_tensor_column(element, shape, std::move(values));
    case TensorForm::kRayTensor:
      return wrap_ray_tensors(element, shape, std::move(values));
    case TensorForm::kHuggingFaceArray:
      break;
  }
  return wrap_nested_lists(element, shape, std::move(values));
}

}  // namespace darkroom
