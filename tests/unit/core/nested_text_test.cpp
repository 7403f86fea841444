#include "darkroom/core/nested_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += piece;
  }
  return text;
}

std::string nested_lists(int depth) { return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']'); }

TEST(ParseJson, reads_what_nests_up_to_the_limit_and_discards_what_nests_deeper) {
  EXPECT_TRUE(parse_json(nested_lists(kMaxJsonDepth)).is_array());
  EXPECT_TRUE(parse_json(nested_lists(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(parse_json(repeated("{\"a\":", kMaxJsonDepth) + "0" + repeated("}", kMaxJsonDepth)).is_object());
  EXPECT_TRUE(parse_json(repeated("{\"a\":", kMaxJsonDepth + 1) + "0" + repeated("}", kMaxJsonDepth + 1)).is_discarded());
}

// nlohmann's parser takes it; the destructor, a copy and dump() would overflow the stack.
TEST(ParseJson, a_million_brackets_do_no_harm) {
  EXPECT_TRUE(parse_json(nested_lists(1'000'000)).is_discarded());
  EXPECT_TRUE(parse_json<nlohmann::ordered_json>("{\"a\":" + nested_lists(1'000'000) + "}").is_discarded());
  EXPECT_TRUE(parse_json(std::string(1'000'000, '[')).is_discarded());
}

TEST(ParseJson, counts_depth_not_brackets) {
  EXPECT_EQ(parse_json("[" + repeated("[{}],", 1000) + "0]").size(), 1001U);
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("\"" + brackets + "\""), brackets);
  EXPECT_EQ(parse_json(R"(["\\", "\"[", 1])").size(), 3U);
  // A string that ends with an escaped backslash ends all the same.
  EXPECT_TRUE(json_nests_deeper(R"({"a\\":[[0]]})", 2));
  EXPECT_FALSE(json_nests_deeper(R"({"a\":[[0]]})", 2));
}

TEST(ParseJson, what_is_no_json_is_discarded) {
  for (const char* text : {"", " ", "{", "]", "nul", "[1,]", "{} {}", "\"", "\"\\", "\xff"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
}

std::string dotted_key(int num_parts) { return "a" + repeated(".a", num_parts - 1); }

TEST(TomlKeys, have_parts_up_to_the_limit) {
  for (const char* form : {"%", "[%]", "[[%]]", "b = {%}", "b = [\n1,\n{%}]", "b = {y = '''x'''', %}", "\"b\\\"\" = 1\n%"}) {
    const std::string text = form;
    const size_t place = text.find('%');
    const auto with_key = [&](int num_parts) { return std::string(text).replace(place, 1, dotted_key(num_parts) + " = 1"); };
    EXPECT_TRUE(check_toml_keys(with_key(kMaxTomlKeyParts)).is_ok()) << text;
    EXPECT_EQ(check_toml_keys(with_key(kMaxTomlKeyParts + 1)).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(TomlKeys, the_line_of_one_that_is_too_long_is_named) {
  const Status status = check_toml_keys("# a\nb = \"\"\"\n\n\"\"\"\n" + dotted_key(300'000) + " = 1\n");
  EXPECT_THAT(status.message(), HasSubstr("line 5"));
  EXPECT_THAT(status.message(), HasSubstr("16 parts"));
}

TEST(TomlKeys, quoted_parts_count) {
  EXPECT_FALSE(check_toml_keys("a" + repeated(".\"b\"", kMaxTomlKeyParts) + " = 1").is_ok());
  EXPECT_FALSE(check_toml_keys("a" + repeated(" . 'b'", kMaxTomlKeyParts) + " = 1").is_ok());
}

TEST(TomlKeys, points_of_texts_comments_and_numbers_are_no_parts) {
  const std::string points(1000, '.');
  EXPECT_TRUE(check_toml_keys("a = \"" + points + "\"").is_ok());
  EXPECT_TRUE(check_toml_keys("a = \"\\\"" + points + "\"").is_ok());
  EXPECT_TRUE(check_toml_keys("a = '\\' # " + points).is_ok());
  EXPECT_TRUE(check_toml_keys("a = '''\n" + points + "'''''").is_ok());
  EXPECT_TRUE(check_toml_keys("a = \"\"\"\n\\\"\"\"" + points + "\"\"\"\"\n# " + points).is_ok());
  EXPECT_TRUE(check_toml_keys("a = [" + repeated("1.5, ", 1000) + "]").is_ok());
  EXPECT_TRUE(check_toml_keys("a = '" + points).is_ok());
  EXPECT_TRUE(check_toml_keys("a = \"\\").is_ok());
}

TEST(WholeNumber, takes_integers_that_fit_and_nothing_else) {
  EXPECT_EQ(whole_number(nlohmann::json(-7)), -7);
  EXPECT_EQ(whole_number(nlohmann::json(INT64_MIN)), INT64_MIN);
  EXPECT_EQ(whole_number(nlohmann::json::parse("9223372036854775807")), INT64_MAX);
  for (const char* text : {"9223372036854775808", "2.0", "1e49", "true", "\"1\"", "null", "[1]"}) {
    EXPECT_THROW(whole_number(nlohmann::json::parse(text)), nlohmann::json::exception) << text;
  }
  EXPECT_EQ(whole_numbers(nlohmann::json::parse(R"({"a": 1, "b": 2})")), (std::map<std::string, int64_t>{{"a", 1}, {"b", 2}}));
  EXPECT_THROW(whole_numbers(nlohmann::json::parse(R"({"a": 1.5})")), nlohmann::json::exception);
  EXPECT_THROW(whole_numbers(nlohmann::json::parse("[1]")), nlohmann::json::exception);
}

}  // namespace
}  // namespace darkroom
