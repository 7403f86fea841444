#include "darkroom/ingest/row_dialects.h"

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

}  // namespace
}  // namespace darkroom
