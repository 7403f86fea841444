#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/tables/where.h"
#include "where_samples.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RowFilter bound(const std::string& text, const arrow::Schema& schema, TableFormat format = TableFormat::kParquet) {
  const auto expression = WhereExpression::parse(text);
  EXPECT_TRUE(expression.is_ok()) << text << ": " << expression.status().to_string();
  auto filter = expression->bind(schema, format, "t.parquet");
  EXPECT_TRUE(filter.is_ok()) << text << ": " << filter.status().to_string();
  return *std::move(filter);
}

std::vector<uint8_t> kept(const std::string& text, const arrow::RecordBatch& batch, TableFormat format = TableFormat::kParquet) {
  std::vector<uint8_t> keep = {9, 9, 9};  // What was there does not matter.
  const Status status = bound(text, *batch.schema(), format).evaluate(batch, keep);
  EXPECT_TRUE(status.is_ok()) << text << ": " << status.to_string();
  return keep;
}

template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> array_of(const std::vector<std::optional<Value>>& values) {
  Builder builder;
  for (const auto& value : values) {
    EXPECT_TRUE((value ? builder.Append(*value) : builder.AppendNull()).ok());
  }
  return builder.Finish().ValueOrDie();
}
std::shared_ptr<arrow::RecordBatch> batch_of(const std::string& name, const std::shared_ptr<arrow::Array>& array) {
  return arrow::RecordBatch::Make(arrow::schema({arrow::field(name, array->type())}), array->length(), {array});
}
std::shared_ptr<arrow::RecordBatch> doubles_batch(const std::vector<std::optional<double>>& values) {
  return batch_of("x", array_of<arrow::DoubleBuilder>(values));
}
std::shared_ptr<arrow::RecordBatch> texts_batch(const std::vector<std::optional<std::string>>& values) {
  return batch_of("x", array_of<arrow::StringBuilder>(values));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(row_filter, follows_three_valued_logic) {
  const auto batch = batch_of("x", array_of<arrow::BooleanBuilder, bool>({true, false, std::nullopt}));
  EXPECT_THAT(kept("x", *batch), ElementsAre(1, 0, 0));
  EXPECT_THAT(kept("NOT x", *batch), ElementsAre(0, 1, 0));
  EXPECT_THAT(kept("x OR NOT x", *batch), ElementsAre(1, 1, 0));
  EXPECT_THAT(kept("x AND FALSE", *batch), ElementsAre(0, 0, 0));
  EXPECT_THAT(kept("NOT (x AND FALSE)", *batch), ElementsAre(1, 1, 1));  // Unknown AND false is false.
  EXPECT_THAT(kept("x OR TRUE", *batch), ElementsAre(1, 1, 1));
  EXPECT_THAT(kept("x = x", *batch), ElementsAre(1, 1, 0));
  EXPECT_THAT(kept("x IS NULL", *batch), ElementsAre(0, 0, 1));
  EXPECT_THAT(kept("x IS NOT NULL", *batch), ElementsAre(1, 1, 0));
  EXPECT_THAT(kept("x NOT IN (TRUE)", *batch), ElementsAre(0, 1, 0));
}

TEST(row_filter, nan_makes_every_comparison_false) {
  const auto batch = doubles_batch({1.0, kNan, std::nullopt});
  EXPECT_THAT(kept("x = x", *batch), ElementsAre(1, 0, 0));
  for (const char* text : {"x != 2", "x < 2", "x <= 2", "2 > x", "x IN (1)", "x NOT IN (2)"}) {
    EXPECT_THAT(kept(text, *batch), ElementsAre(1, 0, 0)) << text;
  }
  EXPECT_THAT(kept("NOT x = 1", *batch), ElementsAre(0, 1, 0));  // False, not unknown.
  EXPECT_THAT(kept("NOT x IN (1)", *batch), ElementsAre(0, 1, 0));
  EXPECT_THAT(kept("x IS NOT NULL", *batch), ElementsAre(1, 1, 0));
}

TEST(row_filter, compares_whole_numbers_beyond_2_to_the_53_exactly) {
  constexpr int64_t k53 = int64_t{1} << 53;
  const auto batch = batch_of("x", array_of<arrow::Int64Builder, int64_t>({k53 - 1, k53, k53 + 1, INT64_MAX, INT64_MIN}));
  EXPECT_THAT(kept("x = 9007199254740993", *batch), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(kept("x > 9007199254740992.0", *batch), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(kept("x >= 9007199254740992.5", *batch), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(kept("x < 9223372036854775808", *batch), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(kept("x = 9.223372036854775807e18", *batch), ElementsAre(0, 0, 0, 1, 0));
  EXPECT_THAT(kept("x > -9223372036854775808.1", *batch), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(kept("x <= -9223372036854775808", *batch), ElementsAre(0, 0, 0, 0, 1));
}

TEST(row_filter, a_number_is_found_in_a_column_of_floats_as_such_a_column_holds_it) {
  const auto floats = batch_of("x", array_of<arrow::FloatBuilder, float>({0.1F, 0.2F, static_cast<float>(kInf), 0.0F}));
  EXPECT_THAT(kept("x = 0.1", *floats), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(kept("x <= 0.1", *floats), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(kept("x IN (0.1, 0.2)", *floats), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(kept("x = 1e300", *floats), ElementsAre(0, 0, 0, 0));  // Infinity is not 1e300, nor is 0 1e-300.
  EXPECT_THAT(kept("x > 1e300", *floats), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(kept("x < 1e-300", *floats), ElementsAre(0, 0, 0, 1));
  const auto doubles = doubles_batch({0.1, static_cast<double>(0.1F)});
  EXPECT_THAT(kept("x = 0.1", *doubles), ElementsAre(1, 0));
}

TEST(row_filter, a_number_is_rounded_once_to_half_precision) {
  // Between 1 and the next half, 1 + 2^-10, lies a tie; a float cannot tell the numbers beside it from it.
  const auto halves = batch_of("x", array_of<arrow::HalfFloatBuilder, uint16_t>({0x3C00, 0x3C01, 0x3C02}));
  EXPECT_THAT(kept("x = 1.00048828124999999", *halves), ElementsAre(1, 0, 0));
  EXPECT_THAT(kept("x = 1.00048828125", *halves), ElementsAre(1, 0, 0));  // Ties go to even.
  EXPECT_THAT(kept("x = 1.00048828125000001", *halves), ElementsAre(0, 1, 0));
  EXPECT_THAT(kept("x = 1.00146484374999999", *halves), ElementsAre(0, 1, 0));
  EXPECT_THAT(kept("x = 1.00146484375", *halves), ElementsAre(0, 0, 1));
  EXPECT_THAT(kept("x = 1.0009765625", *halves), ElementsAre(0, 1, 0));
  const auto negative = batch_of("x", array_of<arrow::HalfFloatBuilder, uint16_t>({0xBC00, 0xBC01}));
  EXPECT_THAT(kept("x = -1.00048828125000001", *negative), ElementsAre(0, 1));
}

TEST(row_filter, a_decimal_equals_what_it_is_written_as) {
  arrow::Decimal128Builder builder(arrow::decimal128(20, 2));
  ASSERT_TRUE(builder.Append(arrow::Decimal128(10)).ok());
  ASSERT_TRUE(builder.Append(arrow::Decimal128(-1234)).ok());
  ASSERT_TRUE(builder.AppendNull().ok());
  const auto batch = batch_of("x", builder.Finish().ValueOrDie());
  EXPECT_THAT(kept("x = 0.1", *batch), ElementsAre(1, 0, 0));
  EXPECT_THAT(kept("x = -12.34", *batch), ElementsAre(0, 1, 0));
  EXPECT_THAT(kept("x < -12.339", *batch), ElementsAre(0, 1, 0));
}

TEST(row_filter, texts_are_compared_by_their_bytes) {
  const auto batch = texts_batch({"a", "B", "\xFF", "", std::nullopt});
  EXPECT_THAT(kept("x < 'a'", *batch), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(kept("x > 'z'", *batch), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(kept("x = ''", *batch), ElementsAre(0, 0, 0, 1, 0));
}

TEST(row_filter, like_knows_percent_and_underscore) {
  const auto batch = texts_batch({"https://a/b.jpg", "http://a/b.jpg", "\xC3\xA9t\xC3\xA9", "a_b", std::nullopt});
  EXPECT_THAT(kept("x LIKE 'https://%'", *batch), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(kept("x NOT LIKE 'https://%'", *batch), ElementsAre(0, 1, 1, 1, 0));
  EXPECT_THAT(kept("x LIKE '%.jpg'", *batch), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(kept("x LIKE '___'", *batch), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(kept("x LIKE '%/a/%'", *batch), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(kept("x LIKE 'HTTP%'", *batch), ElementsAre(0, 0, 0, 0, 0));
}

TEST(row_filter, is_null_can_be_asked_of_any_type) {
  arrow::ListBuilder list(arrow::default_memory_pool(), std::make_shared<arrow::Int32Builder>());
  ASSERT_TRUE(list.Append().ok());
  ASSERT_TRUE(list.AppendNull().ok());
  EXPECT_THAT(kept("x IS NULL", *batch_of("x", list.Finish().ValueOrDie())), ElementsAre(0, 1));
  EXPECT_THAT(kept("x IS NULL", *batch_of("x", std::make_shared<arrow::NullArray>(2))), ElementsAre(1, 1));
  const auto dictionary = arrow::DictionaryArray::FromArrays(array_of<arrow::Int32Builder, int32_t>({0, 1, std::nullopt}),
                                                             array_of<arrow::StringBuilder, std::string>({"a", std::nullopt}))
                              .ValueOrDie();
  EXPECT_THAT(kept("x IS NULL", *batch_of("x", dictionary)), ElementsAre(0, 1, 1));
  EXPECT_THAT(kept("x = 'a'", *batch_of("x", dictionary)), ElementsAre(1, 0, 0));
}

TEST(row_filter, reads_string_views_and_dictionaries_of_numbers) {
  EXPECT_THAT(
      kept("x = 'a text of more than twelve bytes'",
           *batch_of("x", array_of<arrow::StringViewBuilder, std::string>({"a text of more than twelve bytes", "b", std::nullopt}))),
      ElementsAre(1, 0, 0));
  const auto dictionary = arrow::DictionaryArray::FromArrays(array_of<arrow::Int8Builder, int8_t>({1, 0, 1}),
                                                             array_of<arrow::FloatBuilder, float>({0.1F, kNan}))
                              .ValueOrDie();
  EXPECT_THAT(kept("x = 0.1", *batch_of("x", dictionary)), ElementsAre(0, 1, 0));
}

TEST(row_filter, text_tables_are_compared_as_what_they_are_compared_with) {
  const auto batch = texts_batch({"0.05", " 12 ", "abc", "", "NaN", "true", std::nullopt});
  const auto csv = TableFormat::kCsv;
  EXPECT_THAT(kept("x < 0.1", *batch, csv), ElementsAre(1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(kept("NOT x < 0.1", *batch, csv), ElementsAre(0, 1, 0, 0, 1, 0, 0));  // What is no number is unknown; NaN is one.
  EXPECT_THAT(kept("x IN (12.0)", *batch, csv), ElementsAre(0, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(kept("x >= 'a'", *batch, csv), ElementsAre(0, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(kept("x", *batch, csv), ElementsAre(0, 0, 0, 0, 0, 1, 0));
  EXPECT_THAT(kept("x != TRUE", *batch, csv), ElementsAre(0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(kept("x IS NULL", *batch, csv), ElementsAre(0, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(kept("x = x", *batch, csv), ElementsAre(1, 1, 1, 1, 1, 1, 0));
  // 2^53 + 1 in a CSV file is not 2^53.
  EXPECT_THAT(
      kept("x = 9007199254740993", *texts_batch({"9007199254740993", "9007199254740992", "9007199254740993.0"}), TableFormat::kJsonLines),
      ElementsAre(1, 0, 1));
}

TEST(row_filter, an_empty_batch_keeps_nothing) {
  EXPECT_THAT(kept("x < 1", *doubles_batch({})), IsEmpty());
  EXPECT_THAT(kept("1 = 1", *doubles_batch({})), IsEmpty());
  EXPECT_THAT(kept("1 = 1", *doubles_batch({1.0, kNan})), ElementsAre(1, 1));
}

TEST(row_filter, a_batch_may_hold_other_columns_in_any_order) {
  const auto schema = arrow::schema({arrow::field("a", arrow::int32()), arrow::field("b", arrow::int32())});
  const RowFilter filter = bound("B > 1", *schema);
  EXPECT_THAT(filter.columns(), ElementsAre("b"));
  const auto values = array_of<arrow::Int32Builder, int32_t>({1, 2});
  std::vector<uint8_t> keep;
  const auto other = array_of<arrow::StringBuilder, std::string>({"", ""});
  const auto batch =
      arrow::RecordBatch::Make(arrow::schema({arrow::field("c", other->type()), arrow::field("b", values->type())}), 2, {other, values});
  ASSERT_TRUE(filter.evaluate(*batch, keep).is_ok());
  EXPECT_THAT(keep, ElementsAre(0, 1));

  const Status lacks = filter.evaluate(*batch_of("a", values), keep);
  EXPECT_EQ(lacks.code(), StatusCode::kCorruptData);
  EXPECT_THAT(lacks.message(), HasSubstr("one column of this name (columns, name): 0 b"));
  const Status differs = filter.evaluate(*batch_of("b", other), keep);
  EXPECT_EQ(differs.code(), StatusCode::kCorruptData);
  EXPECT_THAT(differs.message(), HasSubstr("(column, type): b string"));
}

// Binding.

Status bind_status(const std::string& text, const arrow::Schema& schema, TableFormat format = TableFormat::kParquet) {
  const auto expression = WhereExpression::parse(text);
  EXPECT_TRUE(expression.is_ok()) << text << ": " << expression.status().to_string();
  return expression->bind(schema, format, "in/t.parquet").status();
}

std::shared_ptr<arrow::Schema> laion_schema() {
  return arrow::schema({arrow::field("URL", arrow::utf8()), arrow::field("TEXT", arrow::utf8()), arrow::field("WIDTH", arrow::int32()),
                        arrow::field("punsafe", arrow::float32()), arrow::field("flag", arrow::boolean()),
                        arrow::field("tags", arrow::list(arrow::utf8())), arrow::field("when", arrow::timestamp(arrow::TimeUnit::SECOND))});
}

TEST(where_binding, a_name_without_quotation_marks_finds_any_letter_case) {
  EXPECT_THAT(bound("width > 1 AND Url = 'x' AND \"URL\" != 'y' AND URL != 'z'", *laion_schema()).columns(), ElementsAre("WIDTH", "URL"));
  const Status status = bind_status("\"url\" = 'x'", *laion_schema());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "where expression, character 1: in/t.parquet has no column \"url\" (a text stands in single quotation marks); its columns, the "
            "nearest name first: URL, TEXT, flag, tags, when, WIDTH, punsafe");
}

TEST(where_binding, an_exact_name_goes_before_another_letter_case) {
  const auto schema =
      arrow::schema({arrow::field("Width", arrow::utf8()), arrow::field("width", arrow::int32()), arrow::field("WIDTH", arrow::int32())});
  EXPECT_THAT(bound("width > 1", *schema).columns(), ElementsAre("width"));
  EXPECT_THAT(bound("\"WIDTH\" > 1", *schema).columns(), ElementsAre("WIDTH"));
  const Status status = bind_status("1 < wIDTH", *schema);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      status.message(),
      "where expression, character 5: wIDTH stands for 3 columns of in/t.parquet (double quotation marks ask for the exact name): Width, "
      "width, WIDTH");
  const auto twice = arrow::schema({arrow::field("a", arrow::int32()), arrow::field("a", arrow::int32())});
  EXPECT_EQ(bind_status("a = 1", *twice).code(), StatusCode::kFailedPrecondition);
}

TEST(where_binding, an_unknown_column_names_those_that_exist_nearest_first) {
  const Status status = bind_status("TEXT LIKE 'a%' AND pusnafe < 0.1", *laion_schema());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(
      status.message(),
      HasSubstr("where expression, character 20: in/t.parquet has no column pusnafe; its columns, the nearest name first: punsafe, "));
  arrow::FieldVector many;
  for (int i = 0; i < 50; ++i) {
    many.push_back(arrow::field("c" + std::to_string(i), arrow::int32()));
  }
  EXPECT_TRUE(bind_status("x = 1", *arrow::schema(many)).message().ends_with(" and 10 more"));
}

TEST(where_binding, refuses_what_cannot_be_compared) {
  const auto message = [](const std::string& text) {
    const Status status = bind_status(text, *laion_schema());
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << text;
    return status.message();
  };
  EXPECT_EQ(message("url < 0.1"),
            "where expression, character 7: in in/t.parquet a number cannot be compared with a text, URL (string), found: 0.1");
  EXPECT_EQ(message("0.1 > url"),
            "where expression, character 7: in in/t.parquet a text cannot be compared with a number, 0.1, found: URL (string)");
  EXPECT_EQ(message("width = 'x'"),
            "where expression, character 9: in in/t.parquet a text cannot be compared with a number, WIDTH (int32), found: 'x'");
  EXPECT_THAT(message("width = url"), HasSubstr("cannot be compared"));
  EXPECT_THAT(message("width IN ('x')"), HasSubstr("cannot be compared"));
  EXPECT_THAT(message("flag = 1"), HasSubstr("a number cannot be compared with TRUE or FALSE, flag (bool), found: 1"));
  EXPECT_EQ(message("flag < flag"), "where expression, character 1: in in/t.parquet TRUE and FALSE have no order, found: flag (bool)");
  EXPECT_THAT(message("width LIKE 'x'"), HasSubstr("LIKE needs a text, found: WIDTH (int32)"));
  EXPECT_THAT(message("punsafe"), HasSubstr("a column alone is a condition only where it is TRUE or FALSE, found: punsafe (float)"));
  EXPECT_THAT(message("tags = 'x'"), HasSubstr("only IS NULL can be asked, found: tags (list<item: string>)"));
  EXPECT_THAT(message("when > 5"), HasSubstr("only IS NULL can be asked, found: when (timestamp[s])"));
  EXPECT_THAT(message("tags"), HasSubstr("found: tags"));
  EXPECT_TRUE(bind_status("tags IS NULL AND when IS NOT NULL", *laion_schema()).is_ok());
}

TEST(where_binding, columns_without_types_have_no_order) {
  const auto schema = arrow::schema({arrow::field("a", arrow::utf8()), arrow::field("b", arrow::utf8())});
  EXPECT_TRUE(bind_status("a < 1 AND a < 'x' AND a = b AND a", *schema, TableFormat::kTsv).is_ok());
  const Status status = bind_status("a < b", *schema, TableFormat::kCsv);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("columns have no types, so two of them have no order"));
  EXPECT_TRUE(bind_status("a < b", *schema, TableFormat::kParquet).is_ok());
}

// Everything at once, against a second reading of the same expressions.

void compare_readings(Random& random, const std::vector<SampleColumn>& columns, TableFormat format, int num_tables, int num_expressions) {
  const bool is_typed = format == TableFormat::kParquet;
  int64_t num_kept = 0;
  int64_t num_rows = 0;
  for (int i = 0; i < num_tables; ++i) {
    const SampleTable table = draw_table(random, columns, static_cast<int64_t>(draw(random, 40)));
    const SampleReading reading(table, is_typed);
    SampleWriter writer(random, columns, is_typed);
    for (int j = 0; j < num_expressions; ++j) {
      const SampleExpression expression = writer.draw_expression(static_cast<int>(draw(random, 4)));
      const std::string text = writer.write(expression);
      const auto parsed = WhereExpression::parse(text);
      ASSERT_TRUE(parsed.is_ok()) << text << "\n" << parsed.status().to_string();
      ASSERT_EQ(WhereExpression::parse(parsed->canonical())->canonical(), parsed->canonical());
      std::vector<uint8_t> want;
      for (int64_t row = 0; row < table.num_rows(); ++row) {
        want.push_back(reading.read(expression, static_cast<size_t>(row)) == SampleTruth::kTrue ? 1 : 0);
      }
      for (const std::string& form : {text, parsed->canonical()}) {
        ASSERT_EQ(kept(form, *table.batch, format), want) << form << "\n" << table.batch->ToString();
      }
      num_rows += table.num_rows();
      num_kept += std::count(want.begin(), want.end(), 1);
    }
  }
  EXPECT_GT(num_kept, num_rows / 10);  // So that neither answer is rare.
  EXPECT_LT(num_kept, num_rows * 9 / 10);
}

TEST(row_filter, equals_a_reading_row_by_row) {
  Random random(20261122);
  compare_readings(random, typed_columns(), TableFormat::kParquet, 500, 16);
}

TEST(row_filter, equals_a_reading_row_by_row_in_text_tables) {
  Random random(4711);
  compare_readings(random, untyped_columns(), TableFormat::kCsv, 200, 10);
}

}  // namespace
}  // namespace darkroom
