#include "darkroom/ingest/value_copier.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

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

// A struct of a list of texts and of a large text: rows {["good"], "good"}, {["bad", null], "bad"}, null.
std::shared_ptr<arrow::Array> nested_texts(const std::string& bad) {
  const auto texts = std::make_shared<arrow::StringBuilder>();
  const auto list = std::make_shared<arrow::ListBuilder>(arrow::default_memory_pool(), texts);
  const auto large = std::make_shared<arrow::LargeStringBuilder>();
  const auto type = arrow::struct_({arrow::field("tags", list->type()), arrow::field("note", arrow::large_utf8())});
  arrow::StructBuilder rows(type, arrow::default_memory_pool(), {list, large});
  arrow::Status status = rows.Append();
  status &= list->Append();
  status &= texts->Append("good");
  status &= large->Append("good");
  status &= rows.Append();
  status &= list->Append();
  status &= texts->Append(bad);
  status &= texts->AppendNull();
  status &= large->Append(bad);
  status &= rows.AppendNull();
  EXPECT_TRUE(status.ok()) << status.ToString();
  return *rows.Finish();
}

TEST(ValueCopier, repairs_text_within_lists_and_structs) {
  const auto source = nested_texts("bad \xFF");
  auto copier = ValueCopier::create("c", source->type());
  ASSERT_TRUE(copier.is_ok());
  for (int64_t row = 0; row < source->length(); ++row) {
    ASSERT_TRUE(copier->append(*source, row).is_ok());
  }
  const auto copy = *copier->finish();
  EXPECT_TRUE(copy->ValidateFull().ok()) << copy->ValidateFull().ToString();
  EXPECT_TRUE(copy->Equals(nested_texts("bad \xEF\xBF\xBD"))) << copy->ToString();
}

TEST(ValueCopier, repairs_views_of_text) {
  arrow::StringViewBuilder builder;
  ASSERT_TRUE(builder.Append("bad \xFF").ok());
  ASSERT_TRUE(builder.AppendNull().ok());
  ASSERT_TRUE(builder.Append(std::string(50, 'x')).ok());
  const auto source = *builder.Finish();
  auto copier = ValueCopier::create("c", source->type());
  ASSERT_TRUE(copier.is_ok());
  for (int64_t row = 0; row < source->length(); ++row) {
    ASSERT_TRUE(copier->append(*source, row).is_ok());
  }
  const auto copy = *copier->finish();
  ASSERT_EQ(copy->type_id(), arrow::Type::STRING_VIEW);
  EXPECT_TRUE(copy->ValidateFull().ok()) << copy->ValidateFull().ToString();
  EXPECT_EQ(static_cast<const arrow::StringViewArray&>(*copy).GetView(0), "bad \xEF\xBF\xBD");
  EXPECT_TRUE(copy->IsNull(1));
  EXPECT_EQ(static_cast<const arrow::StringViewArray&>(*copy).GetView(2), std::string(50, 'x'));
}

TEST(ValueCopier, takes_no_value_of_another_type) {
  arrow::LargeBinaryBuilder builder;
  ASSERT_TRUE(builder.Append("bytes").ok());
  ASSERT_TRUE(builder.AppendNull().ok());
  const auto large = *builder.Finish();
  auto copier = ValueCopier::create("c", arrow::binary());
  EXPECT_EQ(copier->append(*large, 0).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(copier->append(*large, 1).is_ok()) << "null is null";
}

}  // namespace
}  // namespace darkroom
