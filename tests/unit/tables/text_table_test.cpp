#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "darkroom/tables/table_reader.h"
#include "table_rows.h"
#include "tables/row_splitter.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TextTables : public testing::Test {
 protected:
  std::unique_ptr<TableReader> open(const std::string& name, std::string_view text) {
    EXPECT_TRUE(put_file(files_, name, text).is_ok());
    auto table = open_table(files_, name);
    EXPECT_TRUE(table.is_ok()) << table.status().to_string();
    return *std::move(table);
  }
  Status fail(const std::string& name, std::string_view text) {
    EXPECT_TRUE(put_file(files_, name, text).is_ok());
    return open_table(files_, name).status();
  }
  MemoryFileSystem files_;
};

TEST_F(TextTables, csv_follows_rfc_4180) {
  auto table = open("a.csv",
                    "\xEF\xBB\xBFurl,caption\r\n"
                    "u1,plain\r\n"
                    "u2,\"a, \"\"quoted\"\"\ncaption\"\r\n"
                    "\r\n"
                    "u3,inside \"\" a \"mark\"\n"
                    "u4,\"\"\n"
                    "u5,last");
  EXPECT_EQ(table->num_rows().value(), 5);
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("url", "caption"));
  EXPECT_THAT(texts(read_range(*table, 0, 99).value(), "caption"),
              ElementsAre("plain", "a, \"quoted\"\ncaption", "inside \"\" a \"mark\"", "", "last"));
  EXPECT_THAT(texts(read_range(*table, 2, 2, {"url"}).value(), "url"), ElementsAre("u3", "u4"));
}

// A field takes 32 bytes of memory at least, and a line may have one a byte.
TEST_F(TextTables, a_line_has_no_more_fields_than_are_asked_for) {
  std::vector<std::string> fields;
  split_fields(std::string(1000, ','), ',', true, 3, fields);
  EXPECT_THAT(fields, ElementsAre("", "", ""));
  split_fields("a,\"b,\"\"\",c,d", ',', true, 3, fields);
  EXPECT_THAT(fields, ElementsAre("a", "b,\"", "c"));
  for (const size_t most : {3, 4}) {
    split_fields("a,b,", ',', true, most, fields);
    EXPECT_THAT(fields, ElementsAre("a", "b", ""));
  }
}

TEST_F(TextTables, tsv_takes_quotation_marks_as_they_are) {
  auto table = open("a.tsv", "url\tcaption\nu1\t\"open\nu2\tx\n");
  EXPECT_THAT(texts(read_range(*table, 0, 9).value(), "caption"), ElementsAre("\"open", "x"));
}

TEST_F(TextTables, a_row_with_another_number_of_fields_costs_only_itself) {
  auto table = open("a.csv", "url,caption\nu1,a\nu2\nu3,b,c\nu4,d\n");
  auto range = table->read_rows(0, 9, {"caption", "url"}).value();
  const auto batch = read_all(*range).value();
  EXPECT_THAT(texts(batch, "url"), ElementsAre("u1", "<null>", "<null>", "u4"));
  EXPECT_EQ(batch->schema()->field(0)->name(), "caption");
  EXPECT_EQ(range->num_malformed_rows(), 2);
}

TEST_F(TextTables, json_lines_give_text_and_null) {
  auto table =
      open("a.jsonl",
           "{\"url\": \"u1\", \"WIDTH\": 3.5}\n{\"url\": \"u2\", \"tags\": [1, \"x\"], \"WIDTH\": null}\n\nnot json\n{\"url\": \"u3\"}");
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("url", "WIDTH", "tags"));
  auto range = table->read_rows(0, 9, {}).value();
  const auto batch = read_all(*range).value();
  EXPECT_THAT(texts(batch, "url"), ElementsAre("u1", "u2", "<null>", "u3"));
  EXPECT_THAT(texts(batch, "WIDTH"), ElementsAre("3.5", "<null>", "<null>", "<null>"));
  EXPECT_THAT(texts(batch, "tags"), ElementsAre("<null>", "[1,\"x\"]", "<null>", "<null>"));
  EXPECT_EQ(range->num_malformed_rows(), 1);
}

// nlohmann would read it, and overflow the stack when it prints or destroys it.
TEST_F(TextTables, a_json_line_that_nests_too_deep_is_malformed) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  auto table = open("a.jsonl", "{\"url\": " + deep + "}\n{\"url\": \"u2\"}\n");
  auto range = table->read_rows(0, 9, {}).value();
  EXPECT_THAT(texts(read_all(*range).value(), "url"), ElementsAre("<null>", "u2"));
  EXPECT_EQ(range->num_malformed_rows(), 1);
}

TEST_F(TextTables, a_json_value_that_is_no_text_is_its_json_text_in_its_own_order) {
  const std::string value = R"({"z":1,"b":[1,{},[],"x\"y",null,true,[[-2],1.5e3]],"a":{"z":0,"y":"[:,{"}})";
  auto table = open("a.jsonl", "{\"no\":" + value + ",\"url\":" + value +
                                   "}\n{\"url\": [ 1 , { \"a\" : 1.5e3 } ]}\n{\"url\":\"[\"}\n{\"url\":18446744073709551615}");
  auto range = table->read_rows(0, 9, {"url"}).value();
  EXPECT_THAT(texts(read_all(*range).value(), "url"), ElementsAre(value, R"([1,{"a":1.5e3}])", "[", "18446744073709551615"));
}

TEST_F(TextTables, numbers_of_json_keep_their_digits) {
  const std::vector<std::string> numbers = {"12345678901234567890123", "1e5", "0.10", "-0", "-0.0", "-7", "0.1e-400", "[1.50,-0,2E+3]"};
  std::string lines;
  for (const std::string& number : numbers) {
    lines += "{\"n\": " + number + "}\n";
  }
  auto table = open("a.jsonl", lines);
  EXPECT_EQ(texts(read_range(*table, 0, 99).value(), "n"), numbers);
}

// Bytes that are no UTF-8, as of Latin-1, and half a pair of surrogates, as of a text that was cut by its UTF-16.
TEST_F(TextTables, json_lines_with_text_that_json_cannot_hold_keep_their_rows) {
  const std::string ff = "\xff";
  auto table =
      open("a.jsonl",
           "{\"url\": \"u1\", \"caption\": \"caf\xe9 \xe2\x82!\"}\n"
           "{\"url\": \"u2\", \"caption\": \"cut \\ud83d\"}\n"
           "{\"url\": \"u3\", \"caption\": \"\\udE00\\ud83d\\ud83D\\ude00 \\\\ud83d\"}\n"
           "{\"url\": \"u4\", \"caption\": \"fine: \xef\xbf\xbd \\ufffd\", \"note\": \"caf\xe9\", \"tags\": [\"\\udc00\", {\"\xff\": 1}]}\n"
           "{\"url\": \"u5\", \"caption\": \"no end \xe9}\n"
           "{\"url\": \"u6\", \"caption\": \"\\ud83d\\u00e9 \\ud83dx\", \"\xe9\": \"named\"}\n");
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("url", "caption", "note", "tags", "\xef\xbf\xbd"));
  auto range = table->read_rows(0, 99, {}).value();
  const auto rows = read_all(*range).value();
  EXPECT_THAT(texts(rows, "url"), ElementsAre("u1", "u2", "u3", "u4", "<null>", "u6"));
  EXPECT_THAT(texts(rows, "caption"), ElementsAre("caf" + ff + " " + ff + "!", "cut " + ff, ff + ff + "\xF0\x9F\x98\x80 \\ud83d",
                                                  "fine: \xef\xbf\xbd \xef\xbf\xbd", "<null>", ff + "\xc3\xa9 " + ff + "x"));
  EXPECT_EQ(texts(rows, "note")[3], "caf" + ff);
  EXPECT_EQ(texts(rows, "tags")[3], "[\"\xef\xbf\xbd\",{\"\xef\xbf\xbd\":1}]");
  EXPECT_EQ(texts(rows, "\xef\xbf\xbd")[5], "named");
  EXPECT_EQ(range->num_malformed_rows(), 1);
}

TEST_F(TextTables, of_a_json_key_that_comes_twice_the_last_value_counts) {
  auto table = open("a.jsonl", R"({"url":"a","url":"b"})"
                               "\n"
                               R"({"url":"a","url":null})"
                               "\n"
                               R"({"url":[1],"x":{"url":2},"url":[3]})");
  EXPECT_THAT(texts(read_range(*table, 0, 9).value(), "url"), ElementsAre("b", "<null>", "[3]"));
}

TEST_F(TextTables, have_at_most_1000_columns) {
  std::string header = "c0";
  std::string row = "{\"c0\":0";
  for (int i = 1; i < 1000; ++i) {
    header += fmt::format(",c{}", i);
    row += fmt::format(",\"c{}\":0", i);
  }
  EXPECT_EQ(open("a.csv", header + "\n")->schema()->num_fields(), 1000);
  EXPECT_THAT(std::string(fail("b.csv", header + ",c1000\n").message()), HasSubstr("more than 1,000 columns"));
  // Keys that come later are no columns.
  auto table = open("a.jsonl", row + "}\n" + row + ",\"c1000\":1}\n{\"c1001\":1,\"c7\":7}\n");
  EXPECT_EQ(table->schema()->num_fields(), 1000);
  auto range = table->read_rows(0, 9, {}).value();
  EXPECT_THAT(texts(read_all(*range).value(), "c7"), ElementsAre("0", "0", "7"));
  EXPECT_EQ(range->num_malformed_rows(), 0);
}

TEST_F(TextTables, text_that_is_not_utf8_comes_through) {
  auto table = open("a.csv", "url,caption\nu1,caf\xe9\n");
  EXPECT_THAT(texts(read_range(*table, 0, 9).value(), "caption"), ElementsAre("caf\xe9"));
}

TEST_F(TextTables, refuses_what_is_no_table) {
  EXPECT_EQ(fail("a.csv", "").code(), StatusCode::kCorruptData);
  EXPECT_EQ(fail("b.jsonl", "url,caption\nu1,a\n").code(), StatusCode::kCorruptData);
  EXPECT_EQ(fail("a.txt", "x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(open_table(files_, "none.csv").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(open("empty.jsonl", "")->num_rows().value(), 0);
}

TEST_F(TextTables, a_missing_or_doubled_column_is_named) {
  auto table = open("a.csv", "url,caption,url\nu1,a,b\n");
  const Status missing = table->read_rows(0, 1, {"image"}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), testing::AllOf(HasSubstr("a.csv"), HasSubstr("\"image\""), HasSubstr("url, caption")));
  EXPECT_EQ(table->read_rows(0, 1, {"url"}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(TextTables, an_open_quotation_mark_ends_in_an_error_not_in_all_memory) {
  std::string text = "url,caption\nu1,\"never closed\n";
  text.append(70 << 20, 'x');
  auto table = open("a.csv", text);
  EXPECT_EQ(table->num_rows().status().code(), StatusCode::kCorruptData);
}

TEST_F(TextTables, every_range_holds_its_own_rows) {
  constexpr int kNumRows = 5003;  // Several marks of the row index, and a rest.
  std::string csv = "n,text\n";
  std::string json;
  for (int row = 0; row < kNumRows; ++row) {
    csv += fmt::format("{},\"line\n{}\"\n", row, std::string(static_cast<size_t>(row % 700), 'x'));
    json += fmt::format("{{\"n\": {}}}\n", row);
  }
  for (auto* table : {open("a.csv", csv).release(), open("a.jsonl", json).release()}) {
    const std::unique_ptr<TableReader> owner(table);
    for (const int64_t first : {4999, 0, 1023, 1024, 1025, 2500, 5002, 5003, 9999}) {
      const auto batch = read_range(*table, first, 3, {"n"}, {.batch_bytes = 1, .max_batch_rows = 2}).value();
      std::vector<std::string> want;
      for (int64_t row = first; row < std::min<int64_t>(first + 3, kNumRows); ++row) {
        want.push_back(std::to_string(row));
      }
      EXPECT_EQ(texts(batch, "n"), want) << first;
    }
    EXPECT_EQ(table->num_rows().value(), kNumRows);
    EXPECT_EQ(read_range(*table, 0, kNumRows, {"n"}).value()->num_rows(), kNumRows);
    EXPECT_THAT(texts(read_range(*table, 0, 0, {"n"}).value(), "n"), IsEmpty());
  }
}

TEST_F(TextTables, a_range_far_behind_the_end_is_empty_at_once) {
  auto table = open("a.csv", "url\nu1\nu2\n");
  for (const int64_t first : {int64_t{2}, int64_t{3}, int64_t{1} << 50}) {
    const auto rows = read_range(*table, first, 5);
    ASSERT_TRUE(rows.is_ok()) << first << ": " << rows.status().message();
    EXPECT_TRUE(*rows == nullptr || (*rows)->num_rows() == 0) << first;
  }
}

}  // namespace
}  // namespace darkroom
