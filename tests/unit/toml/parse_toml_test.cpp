#include "darkroom/toml/parse_toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(ParseToml, gives_the_tables_with_the_lines_of_their_values) {
  const auto table = parse_toml("a = 1\n\n[b]\nc = \"x\"\n", "my.toml");
  ASSERT_TRUE(table.is_ok()) << table.status().message();
  EXPECT_EQ((*table)["a"].value<int64_t>(), 1);
  const auto text = (*table)["b"]["c"];
  EXPECT_EQ(text.value<std::string>(), "x");
  EXPECT_EQ(text.node()->source().begin.line, 4U);
}

TEST(ParseToml, takes_a_file_of_nothing) {
  const auto table = parse_toml("", "my.toml");
  ASSERT_TRUE(table.is_ok()) << table.status().message();
  EXPECT_TRUE(table->empty());
}

TEST(ParseToml, what_is_no_toml_is_named_with_file_line_and_column) {
  for (const char* text : {"a = = 3", "a = 1\na = 2", "[a", "a = '", "a", "= 1", "a = [1", "a = \"\xff\"", "[a]\n[a]"}) {
    const auto table = parse_toml("# a line\n" + std::string(text) + "\n", "my.toml");
    ASSERT_FALSE(table.is_ok()) << text;
    EXPECT_EQ(table.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(table.status().message(), AllOf(StartsWith("my.toml, line "), HasSubstr(", column "), HasSubstr(": this is no TOML: ")))
        << text;
    EXPECT_THAT(table.status().message(), Not(HasSubstr("line 1,"))) << text;
  }
}

std::string refusal(const std::string& text) {
  const auto table = parse_toml(text, "f");
  return table.is_ok() ? "it is TOML" : table.status().message();
}

TEST(ParseToml, what_is_wrong_is_said_in_our_words) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] :
       {Case{"a = = 3", "f, line 1, column 5: this is no TOML: this is no value; texts stand in quotes"},
        Case{"a = 1\na = 2", "f, line 2, column 5: this is no TOML: 'a' is defined already"},
        Case{"[a]\n[a]", "f, line 2, column 1: this is no TOML: 'a' is defined already"},
        Case{"[a", "f, line 1, column 3: this is no TOML: the file ends before this is complete"},
        Case{"a = 1 2", "f, line 1, column 7: this is no TOML: '2' stands behind what has ended; each setting has a line of its own"},
        Case{"a b = 1", "f, line 1, column 3: this is no TOML: want KEY = VALUE, got 'b'"},
        Case{"= 1", "f, line 1, column 1: this is no TOML: '=' cannot stand here"},
        Case{"a = \"\xff\"", "f, line 1, column 5: this is no TOML: these bytes are no UTF-8"},
        Case{"a = \"\\q\"",
             "f, line 1, column 7: this is no TOML: there is no escape '\\q'; write \\\\ for a backslash, or the text in single quotes"},
        Case{"a = {b=1,}", "f, line 1, column 10: this is no TOML: there is a comma before the closing }"},
        Case{"a = 2024-13-01", "f, line 1, column 12: this is no TOML: no date and no time has 13 there"},
        Case{"a = 99999999999999999999",
             "f, line 1, column 25: this is no TOML: the number '99999999999999999999' does not fit into 64 bits"},
        Case{"a = \"x\ny\"",
             "f, line 1, column 7: this is no TOML: a text within one line ends with its quote, and control characters are "
             "written as escapes"}}) {
    EXPECT_EQ(refusal(text), message) << text;
  }
}

TEST(ParseToml, no_message_is_the_parsers_own) {
  for (const char* text : {"a = '",
                           "a",
                           "a = [1",
                           "a = 01",
                           "a = 1__0",
                           "a = tru",
                           "a = 1e",
                           "a = \"\\ud800\"",
                           "[a]]",
                           "a = {b=1\n}",
                           "a.b=1\na=2",
                           "[[a]]\n[a]",
                           "a\x01=1",
                           "\"\"\"a\"\"\" = 1",
                           "a = [1 2]",
                           "a = \"x\" # c\x02",
                           "a = nane",
                           "a = 0x",
                           "a = \"\"\"x",
                           "a = +",
                           "a = 1.",
                           "a = .5",
                           "a = inf1",
                           "a = 10:99:99",
                           "a=\"x\"b=1",
                           "a = {b=[1,{c=2}], b=3}",
                           "a = 0b2",
                           "a=1979-05-27T07:32:00+99:00",
                           "[]",
                           "a. = 1",
                           "\xef\xbb\xbf\xff",
                           "a = \"\\UFFFFFFFF\"",
                           "a = _1",
                           "a = {}\n[a.b]",
                           "a = 1.2.3",
                           "[[a] ]"}) {
    EXPECT_THAT(refusal(text), StartsWith("f, line ")) << text;
    for (const char* theirs :
         {"rror while", "ncountered", "xpected", "rohibited", "parsing", "saw", "redefine", "what stands here cannot be read"}) {
      EXPECT_THAT(refusal(text), Not(HasSubstr(theirs))) << text;
    }
  }
}

// toml++ destroys nested tables with recursion: it must not see such a key.
TEST(ParseToml, a_key_of_more_parts_than_any_file_needs_is_refused_unparsed) {
  std::string key = "a";
  for (int i = 0; i < 300'000; ++i) {
    key += ".a";
  }
  const auto table = parse_toml("b = 1\n" + key + " = 1\n", "my.toml");
  EXPECT_EQ(table.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.status().message(), "my.toml: line 2: a key has more than 16 parts");
}

}  // namespace
}  // namespace darkroom
