#include "darkroom/tables/bytes_column.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

TEST(BytesColumn, reads_structs_with_null_structs_and_null_bytes) {
  auto bytes = std::make_shared<arrow::BinaryBuilder>();
  arrow::StructBuilder builder(arrow::struct_({arrow::field("bytes", arrow::binary())}), arrow::default_memory_pool(), {bytes});
  ASSERT_TRUE((builder.Append() & bytes->Append("a")).ok());
  ASSERT_TRUE((builder.Append() & bytes->AppendNull()).ok());
  ASSERT_TRUE(builder.AppendNull().ok());
  const auto column = open_image_column("t", "image", *builder.Finish());
  ASSERT_TRUE(column.is_ok());
  EXPECT_EQ(column->at(0), "a");
  EXPECT_EQ(column->at(1), std::nullopt);
  EXPECT_EQ(column->at(2), std::nullopt);
}

TEST(BytesColumn, sees_through_dictionaries) {
  arrow::StringDictionaryBuilder builder;
  ASSERT_TRUE(builder.Append("x").ok());
  ASSERT_TRUE(builder.Append("y").ok());
  ASSERT_TRUE(builder.AppendNull().ok());
  ASSERT_TRUE(builder.Append("x").ok());
  const auto column = BytesColumn::open("t", "c", *builder.Finish());
  ASSERT_TRUE(column.is_ok());
  EXPECT_EQ(column->at(3), "x");
  EXPECT_EQ(column->at(1), "y");
  EXPECT_EQ(column->at(2), std::nullopt);
  arrow::Int32Builder numbers;
  EXPECT_EQ(BytesColumn::open("t", "c", *numbers.Finish()).status().code(), StatusCode::kFailedPrecondition);
}

TEST(BytesColumn, reads_views_of_text_and_bytes) {
  const std::string is_long(100, 'x');  // A view holds 12 bytes itself.
  arrow::StringViewBuilder texts;
  arrow::BinaryViewBuilder bytes;
  for (arrow::BinaryViewBuilder* builder : {static_cast<arrow::BinaryViewBuilder*>(&texts), &bytes}) {
    ASSERT_TRUE(builder->Append("short").ok());
    ASSERT_TRUE(builder->AppendNull().ok());
    ASSERT_TRUE(builder->Append(is_long).ok());
    const auto column = BytesColumn::open("t", "c", *builder->Finish());
    ASSERT_TRUE(column.is_ok()) << column.status().to_string();
    EXPECT_EQ(column->at(0), "short");
    EXPECT_EQ(column->at(1), std::nullopt);
    EXPECT_EQ(column->at(2), is_long);
  }
}

}  // namespace
}  // namespace darkroom
