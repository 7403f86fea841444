#include "darkroom/toml/parse_toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
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
    EXPECT_THAT(table.status().message(), testing::Not(HasSubstr("line 1,"))) << text;
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
