#include "darkroom/tables/tensor_forms.h"

#include <arrow/util/key_value_metadata.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

const std::vector<TensorForm> kAllForms = {TensorForm::kFixedShape, TensorForm::kRayTensor, TensorForm::kHuggingFaceArray};

std::shared_ptr<arrow::Buffer> counting_values(TensorElement element, int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i % 2048);
    const uint16_t half = half_bits(value);
    bytes.append(element == TensorElement::kFloat16 ? reinterpret_cast<const char*>(&half) : reinterpret_cast<const char*>(&value),
                 static_cast<size_t>(element_bytes(element)));
  }
  return arrow::Buffer::FromString(std::move(bytes));
}

TEST(TensorForms, every_form_reads_back_as_the_same_tensors) {
  for (const TensorForm form : kAllForms) {
    for (const TensorElement element : {TensorElement::kFloat16, TensorElement::kFloat32}) {
      for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{4, 2, 3}, {7, 5}, {1, 1}}) {
        for (const int64_t num_rows : {0, 1, 7}) {
          const int64_t row_elements = shape.size() == 3 ? 24 : shape[0] * shape[1];
          const auto values = counting_values(element, num_rows * row_elements);
          const auto array = wrap_tensors(form, element, shape, values);
          ASSERT_TRUE(array.is_ok()) << array.status().to_string();
          ASSERT_TRUE((*array)->ValidateFull().ok()) << (*array)->ValidateFull().ToString();
          const auto field = tensor_field("t", form, element, shape);
          EXPECT_TRUE((*array)->type()->Equals(*field->type())) << (*array)->type()->ToString();
          const auto column = TensorColumn::open(*field, *array, shape);
          ASSERT_TRUE(column.is_ok()) << column.status().to_string();
          EXPECT_EQ(column->num_rows(), num_rows);
          for (int64_t row = 0; row < num_rows; ++row) {
            const auto got = column->bytes(row);
            EXPECT_EQ(std::memcmp(got.data(), values->data() + row * static_cast<int64_t>(got.size()), got.size()), 0);
          }
        }
      }
    }
  }
}

TEST(TensorForms, foreign_types_stand_in_the_metadata) {
  const auto ray = tensor_field("t", TensorForm::kRayTensor, TensorElement::kFloat32, {4, 32, 32});
  EXPECT_EQ(ray->type()->ToString(), "large_list<item: float>");
  EXPECT_EQ(*ray->metadata()->Get("ARROW:extension:name"), "ray.data.arrow_tensor_v2");
  EXPECT_EQ(*ray->metadata()->Get("ARROW:extension:metadata"), "[4, 32, 32]");
  const auto array = tensor_field("t", TensorForm::kHuggingFaceArray, TensorElement::kFloat16, {77, 1024});
  EXPECT_EQ(array->type()->ToString(), "list<item: list<item: halffloat>>");
  EXPECT_EQ(*array->metadata()->Get("ARROW:extension:name"), "datasets.features.features.Array2DExtensionType");
  EXPECT_EQ(*array->metadata()->Get("ARROW:extension:metadata"), "[[77, 1024], \"float16\"]");
}

}  // namespace
}  // namespace darkroom
