#include "darkroom/data/row_columns.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

std::shared_ptr<arrow::Schema> text_schema(const std::vector<std::string>& names) {
  arrow::FieldVector fields;
  for (const std::string& name : names) {
    fields.push_back(arrow::field(name, arrow::utf8()));
  }
  return arrow::schema(fields);
}

TEST(UrlColumns, knows_the_published_dialects) {
  for (const char* url : {"url", "URL", "image_url"}) {
    for (const char* caption : {"caption", "TEXT", "text", "top_caption", "alt_text"}) {
      const auto columns = find_url_columns(*text_schema({"x", url, caption}), "t", "", "");
      ASSERT_TRUE(columns.is_ok());
      EXPECT_EQ(columns->url, url);
      EXPECT_EQ(columns->caption, caption);
      EXPECT_EQ(columns->metadata, std::vector<std::string>{"x"});
    }
  }
}

TEST(UrlColumns, renames_metadata_that_collides_with_ours_in_any_letter_case) {
  const auto columns = find_url_columns(*text_schema({"URL", "TEXT", "WIDTH", "input_WIDTH", "Key", "hash", "caption_2"}), "t", "", "");
  ASSERT_TRUE(columns.is_ok());
  EXPECT_EQ(columns->output_names, (std::vector<std::string>{"input_input_WIDTH", "input_WIDTH", "input_Key", "hash", "caption_2"}));
}

TEST(UrlColumns, takes_the_names_that_are_given) {
  const auto columns = find_url_columns(*text_schema({"url", "link", "caption", "alt"}), "t", "link", "alt");
  ASSERT_TRUE(columns.is_ok());
  EXPECT_EQ(columns->url, "link");
  EXPECT_EQ(columns->caption, "alt");
  EXPECT_EQ(columns->output_names, (std::vector<std::string>{"input_url", "input_caption"}));
}

TEST(UrlColumns, a_missing_column_names_those_that_exist) {
  for (const auto& [url, caption] : {std::pair<std::string, std::string>{"nope", ""}, {"", "nope"}, {"", ""}}) {
    const Status status = find_url_columns(*text_schema({"url", "title"}), "table.csv", url, caption).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.message().find("url, title"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("table.csv"), std::string::npos);
  }
}

TEST(ImageColumns, knows_binary_columns_and_structs_of_bytes) {
  for (const char* name : {"image", "jpg", "png", "webp", "bytes"}) {
    const auto schema = arrow::schema({arrow::field(name, arrow::large_binary()), arrow::field("text", arrow::utf8())});
    const auto columns = find_image_columns(*schema, "t");
    ASSERT_TRUE(columns.is_ok());
    EXPECT_EQ(columns->image, name);
    EXPECT_EQ(columns->key, "");
  }
  const auto image = arrow::struct_({arrow::field("bytes", arrow::binary()), arrow::field("path", arrow::utf8())});
  const auto schema =
      arrow::schema({arrow::field("image", image), arrow::field("text", arrow::utf8()), arrow::field("key", arrow::utf8())});
  EXPECT_EQ(find_image_columns(*schema, "t")->key, "key");
}

TEST(ImageColumns, refuses_an_image_column_of_another_type) {
  const auto schema = arrow::schema({arrow::field("image", arrow::int32()), arrow::field("text", arrow::utf8())});
  EXPECT_EQ(find_image_columns(*schema, "t").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(find_image_columns(*text_schema({"url", "text"}), "t").status().code(), StatusCode::kNotFound);
}

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

TEST(ValueCopier, copies_values_nulls_and_dictionaries_and_repairs_text) {
  arrow::StringDictionaryBuilder dictionary;
  ASSERT_TRUE(dictionary.Append("bad \xFF").ok());
  ASSERT_TRUE(dictionary.AppendNull().ok());
  const auto source = *dictionary.Finish();
  auto copier = ValueCopier::create("c", source->type());
  ASSERT_TRUE(copier.is_ok());
  EXPECT_EQ(copier->type()->id(), arrow::Type::STRING);
  ASSERT_TRUE(copier->append(*source, 0).is_ok());
  ASSERT_TRUE(copier->append(*source, 1).is_ok());
  const auto copy = std::static_pointer_cast<arrow::StringArray>(*copier->finish());
  EXPECT_EQ(copy->GetString(0), "bad \xEF\xBF\xBD");
  EXPECT_TRUE(copy->IsNull(1));

  arrow::ListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::Int64Builder>());
  auto& numbers = static_cast<arrow::Int64Builder&>(*lists.value_builder());
  for (const int64_t row : {1, 2}) {
    ASSERT_TRUE(lists.Append().ok());
    ASSERT_TRUE(numbers.AppendValues(std::vector<int64_t>(static_cast<size_t>(row), 7 + row)).ok());
  }
  const auto list = *lists.Finish();
  auto list_copier = ValueCopier::create("l", list->type());
  ASSERT_TRUE(list_copier->append(*list, 1).is_ok());
  EXPECT_TRUE((*list_copier->finish())->Equals(list->Slice(1)));
}

}  // namespace
}  // namespace darkroom
