#include "darkroom/tables/tensor_column.h"

#include <arrow/api.h>
#include <arrow/util/float16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "darkroom/files/memory_files.h"
#include "darkroom/tables/table_reader.h"
#include "support/put_shard.h"
#include "table_rows.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> counted(size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

std::vector<uint16_t> halves(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(half_bits(value));
  }
  return bits;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<float> floats(const TensorColumn& column, int64_t row) {
  std::vector<float> values(static_cast<size_t>(column.num_elements()));
  column.read_floats(row, values);
  return values;
}

Result<TensorColumn> open(const std::shared_ptr<arrow::Array>& array, const std::vector<int64_t>& shape = {},
                          const std::shared_ptr<const arrow::KeyValueMetadata>& metadata = nullptr) {
  return TensorColumn::open(*arrow::field("t", array->type(), true, metadata), array, shape);
}

/// list<float> (or large, or fixed) rows of `length` values counted from 0.
std::shared_ptr<arrow::Array> float_lists(int64_t num_rows, int64_t length) {
  auto values = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  float next = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    EXPECT_TRUE(builder.Append().ok());
    for (int64_t i = 0; i < length; ++i) {
      EXPECT_TRUE(values->Append(next++).ok());
    }
  }
  return builder.Finish().ValueOrDie();
}

TEST(Halves, every_half_survives_the_way_through_float) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float_of_half(half);
    const float want = arrow::util::Float16::FromBits(half).ToFloat();
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, want) << bits;
      EXPECT_EQ(half_bits(value), half);
    }
  }
  EXPECT_EQ(half_bits(1.0f + 0x1p-11f), half_bits(1.0f)) << "ties go to even";
  EXPECT_EQ(half_bits(70000.0f), 0x7c00);
}

class StoredTensors : public testing::TestWithParam<TensorElement> {};
INSTANTIATE_TEST_SUITE_P(Elements, StoredTensors, testing::Values(TensorElement::kFloat16, TensorElement::kFloat32),
                         [](const auto& info) { return info.param == TensorElement::kFloat16 ? "float16" : "float32"; });

TEST_P(StoredTensors, come_back_from_a_shard_bit_by_bit) {
  const std::vector<int64_t> shape = {4, 3, 5};
  const std::vector<float> values = counted(60 * 7);
  const std::string bytes = GetParam() == TensorElement::kFloat16 ? raw(halves(values)) : raw(values);
  const auto column = make_tensor_column(GetParam(), shape, std::as_bytes(std::span(bytes))).value();
  EXPECT_TRUE(column->ValidateFull().ok());
  const auto schema = arrow::schema({arrow::field("latents", tensor_type(GetParam(), shape))});
  MemoryFileSystem files;
  const auto rows = arrow::RecordBatch::Make(schema, 7, {column});
  ASSERT_TRUE(put_shard(files, "out", "a.parquet", *rows, {}, {.row_group_bytes = 300}).is_ok());

  auto table = open_table(files, "out/a.parquet").value();
  const auto batch = read_range(*table, 2, 4).value();
  const TensorColumn read = TensorColumn::open(*batch->schema()->field(0), batch->column(0), shape).value();
  EXPECT_EQ(read.shape(), shape);
  EXPECT_EQ(read.element(), GetParam());
  EXPECT_EQ(read.num_rows(), 4);
  const int64_t row_bytes = 60 * element_bytes(GetParam());
  for (int64_t row = 0; row < 4; ++row) {
    const auto got = read.bytes(row);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()),
              bytes.substr(static_cast<size_t>((row + 2) * row_bytes), static_cast<size_t>(row_bytes)));
    EXPECT_EQ(floats(read, row).front(), static_cast<float>((row + 2) * 60));
  }
}

TEST(TensorColumns, reads_lists_fixed_lists_and_slices_of_them) {
  const auto lists = float_lists(5, 6);
  const TensorColumn column = open(lists, {2, 3}).value();
  EXPECT_THAT(floats(column, 1), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_EQ(open(lists).value().shape(), std::vector<int64_t>{6});
  EXPECT_EQ(floats(open(lists->Slice(3), {6}).value(), 0).front(), 18);
  const auto& values = static_cast<const arrow::ListArray&>(*lists).values();
  const auto fixed = arrow::FixedSizeListArray::FromArrays(values, 6).ValueOrDie();
  EXPECT_EQ(floats(open(fixed, {6}).value(), 4).front(), 24);
  EXPECT_EQ(floats(open(fixed->Slice(2, 2), {1, 6}).value(), 1).front(), 18);
}

TEST(TensorColumns, reads_nested_lists_with_their_shape) {
  const auto inner = std::static_pointer_cast<arrow::ListArray>(float_lists(6, 2));
  const auto offsets = integers({0, 3, 6});
  const auto outer = arrow::ListArray::FromArrays(*offsets, *inner).ValueOrDie();
  const TensorColumn column = open(outer).value();
  EXPECT_THAT(column.shape(), ElementsAre(3, 2));
  EXPECT_THAT(floats(column, 1), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_TRUE(open(outer, {3, 2}).is_ok());
  EXPECT_EQ(open(outer, {2, 3}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(floats(open(outer->Slice(1)).value(), 0).front(), 6);
}

TEST(TensorColumns, reads_doubles_as_floats) {
  arrow::DoubleBuilder values;
  ASSERT_TRUE(values.AppendValues({0.5, 1.5, 2.5, 3.5}).ok());
  const auto column = open(arrow::FixedSizeListArray::FromArrays(values.Finish().ValueOrDie(), 2).ValueOrDie()).value();
  EXPECT_EQ(column.element(), std::nullopt);
  EXPECT_THAT(floats(column, 1), ElementsAre(2.5f, 3.5f));
}

TEST(TensorColumns, reads_raw_blobs_of_either_width) {
  const std::vector<float> values = counted(6);
  for (const auto& [bytes, element] :
       {std::pair(raw(values), TensorElement::kFloat32), std::pair(raw(halves(values)), TensorElement::kFloat16)}) {
    const TensorColumn column = open(blobs({bytes, bytes}), {2, 3}).value();
    EXPECT_EQ(column.element(), element);
    EXPECT_EQ(floats(column, 1), values);
  }
  EXPECT_EQ(open(blobs({"12345"}), {2, 3}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(open(blobs({"1234"})).status().code(), StatusCode::kFailedPrecondition);
}

TEST(TensorColumns, takes_the_shape_in_rays_metadata_as_data_only) {
  const auto lists = float_lists(2, 6);
  const auto metadata = [](const std::string& text) {
    return arrow::key_value_metadata({"ARROW:extension:name", "ARROW:extension:metadata"}, {"ray.data.arrow_tensor_v2", text});
  };
  EXPECT_THAT(open(lists, {}, metadata("[2, 3]")).value().shape(), ElementsAre(2, 3));
  EXPECT_THAT(open(lists, {2, 3}, metadata("\x80\x04K\x02K\x03\x86.")).value().shape(), ElementsAre(2, 3)) << "a pickle is ignored";
  EXPECT_EQ(open(lists, {3, 2}, metadata("[2, 3]")).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(open(lists, {}, metadata("[7]")).status().code(), StatusCode::kCorruptData);
  EXPECT_TRUE(open(lists, {6}, metadata("[-6, \"x\"]")).is_ok());
  EXPECT_TRUE(open(lists, {6}, metadata("[4294967296, 4294967296]")).is_ok());
}

TEST(TensorColumns, names_rows_of_another_length_and_wrong_types) {
  auto values = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const int length : {2, 3}) {
    ASSERT_TRUE(builder.Append().ok());
    ASSERT_TRUE(values->AppendValues(std::vector<float>(static_cast<size_t>(length))).ok());
  }
  const Status uneven = open(builder.Finish().ValueOrDie()).status();
  EXPECT_EQ(uneven.code(), StatusCode::kCorruptData);
  EXPECT_THAT(uneven.message(), HasSubstr("t 1 2 3"));
  EXPECT_EQ(open(integers({1, 2})).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(open(float_lists(2, 6), {7}).status().code(), StatusCode::kFailedPrecondition);
  const auto ints = arrow::FixedSizeListArray::FromArrays(integers({1, 2}), 2).ValueOrDie();
  EXPECT_EQ(open(ints).status().code(), StatusCode::kFailedPrecondition);
}

TEST(TensorColumns, knows_null_rows_and_refuses_null_elements) {
  auto values = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  ASSERT_TRUE(builder.AppendNull().ok());
  ASSERT_TRUE(builder.Append().ok());
  ASSERT_TRUE(values->AppendValues({1, 2}).ok());
  const TensorColumn column = open(builder.Finish().ValueOrDie(), {2}).value();
  EXPECT_TRUE(column.is_null(0));
  EXPECT_THAT(floats(column, 1), ElementsAre(1, 2));
  EXPECT_THROW((void)column.bytes(0), CheckFailure);
  ASSERT_TRUE(builder.Append().ok());
  ASSERT_TRUE(values->AppendNull().ok());
  EXPECT_EQ(open(builder.Finish().ValueOrDie()).status().code(), StatusCode::kCorruptData);
}

TEST(TensorColumns, an_empty_column_takes_the_shape_that_is_needed) {
  const TensorColumn column = open(float_lists(0, 0), {4, 4}).value();
  EXPECT_EQ(column.num_rows(), 0);
  EXPECT_THAT(column.shape(), ElementsAre(4, 4));
}

TEST(wrap_tensor_column, takes_the_buffer_as_it_is) {
  const std::vector<float> values = counted(12);
  const auto buffer = arrow::Buffer::FromString(raw(values));
  const auto column = wrap_tensor_column(TensorElement::kFloat32, {2, 3}, buffer);
  ASSERT_TRUE(column->ValidateFull().ok());
  EXPECT_TRUE(column->Equals(**make_tensor_column(TensorElement::kFloat32, {2, 3}, std::as_bytes(std::span(values)))));
  const auto opened = open(column);
  EXPECT_EQ(static_cast<const void*>(opened->bytes(0).data()), buffer->data());
  EXPECT_THAT(floats(*opened, 1), ElementsAre(6, 7, 8, 9, 10, 11));
}

}  // namespace
}  // namespace darkroom
